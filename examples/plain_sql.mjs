// From another language, with nothing but its standard library: what must be right is the digest, and the database checks it.
//
//     DATABASE_URL=postgresql://shop@/app node examples/plain_sql.mjs 18
//
// Here psql carries the statement, so that there is nothing to install. With a driver it is the same text and the same
// values: `await client.query(INSERT, values)`, inside of your own transaction.
import { createHash } from "node:crypto";
import { execFileSync } from "node:child_process";

// RFC 8785, for the values that this service has: objects with sorted keys, no spaces. (JSON.stringify already writes
// numbers and strings as the RFC wants them; sort() compares code units, as it must.)
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const names = Object.keys(value).sort();
    return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

// SHA-256 over "outbox/1", a zero byte, and each field as its length in four bytes (-1: absent) and its UTF-8 bytes.
export function digest(fields) {
  const hash = createHash("sha256").update("outbox/1\0");
  for (const field of fields) {
    const bytes = Buffer.from(field ?? "", "utf8");
    const length = Buffer.alloc(4);
    length.writeInt32BE(field === null ? -1 : bytes.length);
    hash.update(length).update(bytes);
  }
  return hash.digest("hex");
}

const INSERT = `
  insert into outbox.intent (tenant_id, operation_id, tool, resource, principal_id, arguments, digest)
  values ($1, $2, $3, $4, $5, $6, decode($7, 'hex'))`;

function put(order) {
  const [tenant, id, tool, resource] = ["acme", `node-order-${order}`, "payment.refund", `order-${order}`];
  const args = canonical({ reason: "zu groß 😀", cents: 1999 });
  const values = [tenant, id, tool, resource, "billing", args, digest([tenant, id, tool, resource, null, args])];
  run(INSERT, values);
  console.log(`${id}: committed`);
}

function run(statement, values) {
  // psql quotes a variable as a literal where it stands as :'v1'.
  const variables = values.flatMap((value, n) => ["-v", `v${n + 1}=${value}`]);
  const input = `begin;\n${statement.replace(/\$(\d+)/g, ":'v$1'")};\ncommit;\n`;
  const psql = process.env.PSQL ?? "psql";
  execFileSync(psql, ["-qX", "-v", "ON_ERROR_STOP=1", ...variables, process.env.DATABASE_URL], { input });
}

if (process.argv[2] === "--digest") console.log(digest(JSON.parse(process.argv[3])));
else put(process.argv[2]);
