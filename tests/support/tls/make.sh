#!/bin/sh
# Certificates of the hostile server. For tests only: their keys are public, and nothing may trust them.
# Run here, once; they are valid for a century.
set -eu
new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
new_key ca.key
openssl req -x509 -new -key ca.key -days 36500 -subj "/CN=outbox tests, trust nothing of this" -out ca.pem \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
new_key server.key
openssl req -new -key server.key -subj "/CN=receiver.test" -out server.csr
printf 'subjectAltName=DNS:receiver.test,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n' > server.ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 36500 -extfile server.ext -out server.pem
rm -f server.csr server.ext ca.key ca.srl
