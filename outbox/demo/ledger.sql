-- The books of the demo's receiver, in SQLite: what it was asked, what it did, and which keys it remembers. Its own, apart from everything
-- that the outbox stores, so that they can be held against each other.

-- name: create_request
-- Every request that arrived, whatever became of it.
create table if not exists request (
  id integer primary key,
  at real not null,
  method text not null,
  target text not null,
  tool text not null,
  identity text not null,
  operation text,
  fence text,
  fault text,
  status integer -- null: no answer was given
)

-- name: create_effect
-- Every effect: what a customer would have noticed.
create table if not exists effect (
  id integer primary key,
  at real not null,
  request_id integer not null references request (id),
  tool text not null,
  identity text not null,
  operation text,
  resource text not null,
  body blob not null,
  receipt text not null unique,
  visible_at real not null
)

-- name: create_effect_identity
-- Effects are looked up by their identity.
create index if not exists effect_identity on effect (identity)

-- name: create_idempotency_key
-- Keys and the answers that belong to them, as long as they are kept.
create table if not exists idempotency_key (
  key text primary key,
  fingerprint blob not null,
  status integer not null,
  answer text not null,
  first_at real not null
)

-- name: create_version
-- The version of each resource that is written by PUT.
create table if not exists version (
  resource text primary key,
  number integer not null
)

-- name: create_fence
-- The highest fence that was seen of each lane.
create table if not exists fence (
  lane text primary key,
  number integer not null
)

-- name: add_request
-- Write down that a request arrived.
insert into request (at, method, target, tool, identity, operation, fence, fault)
values (:at, :method, :target, :tool, :identity, :operation, :fence, :fault)

-- name: answer_request
-- Write down what was answered, just before it is sent.
update request set status = :status where id = :id

-- name: add_effect
-- The effect happens.
insert into effect (at, request_id, tool, identity, operation, resource, body, receipt, visible_at)
values (:at, :request_id, :tool, :identity, :operation, :resource, :body, :receipt, :visible_at)

-- name: known_key
-- What is remembered of a key that is not too old.
select fingerprint, status, answer from idempotency_key where key = :key and first_at > :since

-- name: remember_key
-- Remember a key; one that was too old is a new one.
insert into idempotency_key (key, fingerprint, status, answer, first_at) values (:key, :fingerprint, :status, :answer, :at)
on conflict (key) do update set fingerprint = excluded.fingerprint, status = excluded.status, answer = excluded.answer,
  first_at = excluded.first_at

-- name: version_of
-- The version of a resource; none was ever written: no row.
select number from version where resource = :resource

-- name: raise_version
-- The next version of a resource.
insert into version (resource, number) values (:resource, 1) on conflict (resource) do update set number = number + 1

-- name: last_writer
-- Who wrote a resource last.
select identity, receipt from effect where tool = :tool and resource = :resource and visible_at <= :now order by id desc limit 1

-- name: raise_fence
-- Remember the highest fence of a lane, and return it.
insert into fence (lane, number) values (:lane, :number)
on conflict (lane) do update set number = max(number, excluded.number) returning number

-- name: effect_by_identity
-- The first visible effect of an identity, for a look-up.
select receipt, resource, tool from effect
where (:tool is null or tool = :tool) and identity = :identity and visible_at <= :now order by id limit 1

-- name: effects_page
-- A page of a list of visible effects, newest first, as payment APIs list them.
select id, receipt, resource, identity from effect
where tool = :tool and (:identity is null or identity = :identity) and visible_at <= :now and (:before is null or id < :before)
order by id desc limit :page_size

-- name: effects
-- All effects, in the order in which they happened.
select id, at, tool, identity, operation, resource, receipt, body, request_id from effect order by id

-- name: requests
-- All requests, in the order in which they arrived.
select id, at, method, target, tool, identity, operation, fence, fault, status from request order by id

-- name: count_effects
-- How many effects, of one tool or of all.
select count(*) from effect where :tool is null or tool = :tool

-- name: count_requests
-- How many requests that may cause effects, of one tool or of all.
select count(*) from request where method <> 'GET' and (:tool is null or tool = :tool)

-- name: duplicates
-- Identities with more than one effect, and how many.
select tool, identity, count(*) from effect group by tool, identity having count(*) > 1 order by tool, identity
