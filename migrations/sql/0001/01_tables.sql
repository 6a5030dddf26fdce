-- The tables of the outbox. One idea per table; the hot path is three narrow writes (intent + pending, pending, outcome).
-- Every time is the database's clock, through outbox.now().

create type outbox.state as enum ('proposed', 'authorized', 'executing', 'succeeded', 'rejected', 'unknown');
create type outbox.step as enum ('none', 'look', 'resend', 'person');

-- A simulation database replaces this one function; nothing else in the schema reads a clock.
-- Functions that run with the caller's rights have bodies that are parsed here and now (`return`, not a string): a body that is parsed when
-- it runs would find the caller's own sha256() or clock_timestamp() first, if his search_path says so.
create function outbox.now() returns timestamptz language sql volatile parallel safe
  return clock_timestamp();

-- Which database this is, and which life of it. `era` grows at every failover or restore, and is the upper part of every fence.
create table outbox.instance (
  only_row boolean primary key default true check (only_row),
  id uuid not null default gen_random_uuid(),
  system_identifier bigint not null,
  timeline int not null,
  database_oid oid not null, -- a dump that is restored beside, or in place of, this database is another one
  era bigint not null default 1 check (era between 1 and 4194303),
  swept_era bigint not null default 1 check (swept_era <= era), -- until it is this era, no lane can be taken: outbox.sweep_era()
  era_seq bigint not null default 0, -- the last intent that was there when this era began: what came later was never exposed before it
  schema_version int not null,
  min_daemon int not null,
  feed_offset bigint not null default 0 check (feed_offset >= 0), -- see outbox.feed_xid()
  created_at timestamptz not null default outbox.now()
);

-- The closed vocabulary of reasons; a test compares it with states.Cause.
create table outbox.cause (name text primary key);

create table outbox.receiver (
  receiver_id int generated always as identity primary key,
  name text not null unique check (name ~ '^[a-z][a-z0-9_-]{0,62}$'),
  transport text not null,
  lanes int not null check (lanes between 1 and 1024),
  doorbell boolean not null default true,
  config jsonb not null,
  circuit_opened_at timestamptz, -- null: closed. Shared by all relays (relay/circuit.py)
  circuit_reason text,
  circuit_retry_at timestamptz,  -- when somebody may make the next probe
  circuit_probes int not null default 0, -- how many have failed since it opened
  applied_at timestamptz not null default outbox.now(),
  applied_by text not null default session_user
);

-- Every version of what a tool's wire bytes and rules depend on (the wiring document). Append-only.
create table outbox.contract (
  contract_id int generated always as identity unique,
  digest bytea primary key check (octet_length(digest) = 32),
  tool text not null,
  version int not null,
  body jsonb not null,
  applied_at timestamptz not null default outbox.now(),
  applied_by text not null default session_user,
  unique (tool, version)
);

-- The numbers beside contract_id are derived from the wiring by `outbox apply`, so that the begin statement can judge a batch.
create table outbox.tool (
  name text primary key check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
  receiver_id int not null references outbox.receiver,
  lanes int not null,                             -- the receiver's, which never change: whoever places reads one row
  contract_id int not null references outbox.contract (contract_id),
  requires_approval boolean not null default false,
  policy_version int not null default 1,
  retention interval not null default '0',        -- how long the receiver honours the key; 0: no key
  key_forever boolean not null default false,
  margin interval not null default '0',
  reach interval not null,                        -- max(deadline, in-flight bound): how late a resend begun now may land
  deadline interval not null,
  settle interval,                                -- from the begin of an attempt until it cannot land any more; null: no bound stated
  person_settle interval not null default '1 hour',
  identity_retention interval,                    -- how long a purged id still gets its answer; null: for ever
  repeat_safe boolean not null default false,     -- a resend is harmless at any time
  resend_safe boolean not null default false,     -- some resend is deduplicated, guarded or harmless
  stores_key_on_execution boolean not null default false,
  lands_late boolean not null default false,      -- an earlier attempt may still land after a later one ended: order must wait
  applied_at timestamptz not null default outbox.now(),
  applied_by text not null default session_user
);

-- Kill switches, honoured by the begin statement. `name` is a receiver, a tool or a tenant.
create table outbox.pause (
  kind text not null check (kind in ('receiver', 'tool', 'tenant')),
  name text not null,
  paused_at timestamptz not null default outbox.now(),
  paused_by text not null,
  reason text not null,
  primary key (kind, name)
);

create function outbox.lp(v text) returns bytea language sql stable parallel safe
  return coalesce(int4send(octet_length(v)) || convert_to(v, 'UTF8'), int4send(-1));
create function outbox.digest_of(tenant_id text, operation_id text, tool text, resource text, expected_version text, arguments text,
                                 content_type text, body bytea) returns bytea language sql stable parallel safe
  return sha256('\x6f7574626f782f3100'::bytea || outbox.lp(tenant_id) || outbox.lp(operation_id) || outbox.lp(tool) || outbox.lp(resource)
    || outbox.lp(expected_version) || outbox.lp(arguments)
    || coalesce(outbox.lp(content_type) || int4send(octet_length(body)) || body, ''::bytea));

-- SHA-256 over length-prefixed fields, the public encoding `outbox/1`. Callable by writers in any language. What PL/pgSQL has planned stays
-- for as long as the session lives, while a function in SQL is taken apart and planned for every statement that calls it. Its one
-- expression was bound above, so no search_path of a caller changes what it means; immutable, since the database is in UTF-8.
create function outbox.intent_digest(tenant_id text, operation_id text, tool text, resource text, expected_version text,
                                     arguments text, content_type text default null, body bytea default null)
  returns bytea language plpgsql immutable parallel safe as $$
begin
  return outbox.digest_of(tenant_id, operation_id, tool, resource, expected_version, arguments, content_type, body);
end $$;

-- Insert-only. Its CHECK recomputes the digest, so no writer in any language can lie about it.
create table outbox.intent (
  seq bigint generated always as identity (cache 1) primary key,
  tenant_id text not null,
  operation_id text not null,
  tool text not null,
  resource text,
  arguments text,
  content_type text,
  body bytea,
  expected_version text,
  ordering_key text,
  principal_id text not null,
  expires_at timestamptz,
  not_before timestamptz,
  compensates text,
  revision_of text,
  on_behalf_of text,
  traceparent text,
  written_by text not null default session_user,
  created_at timestamptz not null default outbox.now(),
  redacted_at timestamptz,
  digest bytea not null,
  unique (tenant_id, operation_id)
);

-- A sentence about the first fault of an intent, or null. It begins with the column.
-- An id is 1 to 200 characters from ! to ~; written without a counted repetition, which would cost a regular expression 20 us per value.
create function outbox.identity_fault(tenant_id text, operation_id text, principal_id text) returns text language sql stable parallel safe
  return case
    when octet_length(tenant_id) > 200 or tenant_id !~ '^[!-~]+$' then 'tenant_id is not 1 to 200 characters from ! to ~'
    when octet_length(operation_id) > 200 or operation_id !~ '^[!-~]+$' then 'operation_id is not 1 to 200 characters from ! to ~'
    when octet_length(principal_id) > 200 or principal_id !~ '^[!-~]+$' then 'principal_id is not 1 to 200 characters from ! to ~'
  end;
create function outbox.option_fault(i outbox.intent) returns text language sql stable parallel safe
  return case
    when octet_length((i).compensates) > 200 or (i).compensates !~ '^[!-~]+$' then 'compensates is not 1 to 200 characters from ! to ~'
    when octet_length((i).revision_of) > 200 or (i).revision_of !~ '^[!-~]+$' then 'revision_of is not 1 to 200 characters from ! to ~'
    when octet_length((i).on_behalf_of) > 200 or (i).on_behalf_of !~ '^[!-~]+$' then 'on_behalf_of is not 1 to 200 characters from ! to ~'
    when octet_length((i).resource) not between 1 and 2000 then 'resource is not 1 to 2000 bytes'
    when octet_length((i).ordering_key) not between 1 and 2000 then 'ordering_key is not 1 to 2000 bytes'
    when octet_length((i).body) > 262144 then 'body is more than 262144 bytes'
    when octet_length((i).content_type) > 200 or (i).content_type !~ '^[ -~]+$' then 'content_type is not 1 to 200 characters from space to ~'
    when octet_length((i).expected_version) > 200 or (i).expected_version !~ '^[ -~]+$'
      then 'expected_version is not 1 to 200 characters from space to ~'
    when (i).traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then 'traceparent is not that of W3C Trace Context'
  end;
create function outbox.payload_fault(digest bytea, redacted_at timestamptz, tenant_id text, operation_id text, tool text, resource text,
                                     expected_version text, arguments text, content_type text, body bytea)
  returns text language sql stable parallel safe
  return case
    when octet_length(arguments) > 262144 then 'arguments are more than 262144 bytes'
    when redacted_at is not null then null
    when (arguments is null) = (body is null) then 'arguments or body: exactly one of them is the payload'
    when (body is null) <> (content_type is null) then 'content_type belongs to a body, and to nothing else'
    when digest <> outbox.digest_of(tenant_id, operation_id, tool, resource, expected_version, arguments, content_type, body)
      then 'digest is not that of this intent: see outbox.intent_digest()'
  end;

-- One CHECK of the whole row, by a function whose plan stays with the session: what stands in a CHECK itself is read and planned anew for
-- every INSERT statement, and fourteen of them cost more than all the rest of it. What stays is still made ready once per transaction, every
-- part of it, so that a row without options is asked the same questions with their answers filled in: half of them are gone then.
create function outbox.intent_is_sound(i outbox.intent) returns boolean language plpgsql immutable parallel safe as $$
declare
  fault pg_catalog.text;
begin
  if coalesce(i.compensates, i.revision_of, i.on_behalf_of, i.resource, i.ordering_key, i.content_type, i.expected_version, i.traceparent) is null
     and i.body is null and i.redacted_at is null then
    fault := coalesce(outbox.identity_fault(i.tenant_id, i.operation_id, i.principal_id),
      outbox.payload_fault(i.digest, null, i.tenant_id, i.operation_id, i.tool, null, null, i.arguments, null, null));
  else
    fault := coalesce(outbox.identity_fault(i.tenant_id, i.operation_id, i.principal_id), outbox.option_fault(i),
      outbox.payload_fault(i.digest, i.redacted_at, i.tenant_id, i.operation_id, i.tool, i.resource, i.expected_version, i.arguments,
        i.content_type, i.body));
  end if;
  if fault is null then
    return true;
  end if;
  raise exception 'the intent is refused: %', fault
    using errcode = '23514', schema = 'outbox', table = 'intent', constraint = 'intent_is_sound', column = pg_catalog.split_part(fault, ' ', 1);
end $$;
alter table outbox.intent add constraint intent_is_sound check (outbox.intent_is_sound(intent));

create index intent_created_at on outbox.intent using brin (created_at);
create index intent_resource on outbox.intent (resource, seq) where resource is not null;

-- Only operations that have not ended. No index on a column that changes, so that every update is HOT. What a begin changes stands
-- together, since the log of an update holds everything from the first byte that differs to the last one.
create table outbox.pending (
  receiver_id int not null,
  lane int not null,
  seq bigint not null,
  next_at timestamptz not null,
  ord bigint,
  expires_at timestamptz,
  policy_version int not null,
  step outbox.step not null default 'none',
  state outbox.state not null,
  attempt int not null default 0,
  fence bigint,
  begun_at timestamptz,
  first_sent_at timestamptz,
  resend_until timestamptz,
  unresolved_at timestamptz,
  contract_id int,
  approval_id bigint,
  throttled int not null default 0,
  not_sent int not null default 0,
  passed boolean not null default false,
  sent_key uuid,
  wire_digest bytea,
  cause text,
  primary key (receiver_id, lane, seq)
-- A row grows by 40 bytes when it begins: below this part of a page, what was written in one go fits twice.
) with (fillfactor = 38, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

-- The name of the first rule that a row breaks, or null.
create function outbox.pending_fault(p outbox.pending) returns text language sql immutable parallel safe
  return case
    when (p).state in ('succeeded', 'rejected') then 'only_open_operations'
    when (p).state not in ('executing', 'unknown') and (p).unresolved_at is not null then 'only_executing_and_unknown_hide_an_effect'
    when (p).state = 'unknown' and ((p).unresolved_at is null or (p).first_sent_at is null or (p).resend_until is null) then 'unknown_is_unresolved'
    when (p).state = 'executing' and ((p).attempt < 1 or (p).fence is null or (p).begun_at is null or (p).first_sent_at is null
      or (p).resend_until is null) then 'executing_is_exposed'
  end;
create function outbox.pending_is_sound(p outbox.pending) returns boolean language plpgsql immutable parallel safe as $$
declare
  fault pg_catalog.text := coalesce(outbox.pending_fault(p), case when not outbox.is_cause(p.cause) then 'pending_cause' end);
begin
  if fault is null then
    return true;
  end if;
  raise exception 'a pending operation breaks the rule %', fault
    using errcode = '23514', schema = 'outbox', table = 'pending', constraint = fault;
end $$;
alter table outbox.pending add constraint pending_is_sound check (outbox.pending_is_sound(pending));
create index pending_order on outbox.pending (receiver_id, ord, seq) where ord is not null;
create index pending_expiry on outbox.pending (expires_at) where expires_at is not null;

-- One row while any attempt is unresolved, or a person is needed: the reconciler's and `stuck`'s own table.
create table outbox.doubt (
  seq bigint primary key,
  receiver_id int not null,
  lane int not null,
  tenant_id text not null,
  tool text not null,
  attempt int not null,
  since timestamptz not null default outbox.now(),
  last_exposed_at timestamptz,
  gave_up_at timestamptz not null default outbox.now(),
  settle_at timestamptz,
  step outbox.step not null default 'look',
  next_at timestamptz not null,
  reads int not null default 0 check (reads >= 0), -- looks since the latest exposure
  last_read_at timestamptz,                       -- when the last of them was sent
  accepted boolean not null default false,        -- a 202 was seen: "not found" proves nothing from now on
  no_resend boolean not null default false,       -- a resend would teach nothing (stored failure, 412 on a resend, mismatch)
  needs_person boolean not null default false,
  reason text,
  claimed_by uuid,
  claimed_until timestamptz
);
create index doubt_due on outbox.doubt (receiver_id, next_at);
create index doubt_tenant on outbox.doubt (tenant_id, seq);

-- The transaction that ends an operation, as the feed orders by it. In a cluster that starts to count anew (a logical restore),
-- outbox.keep_feed_order() replaces this function: what is stored then is the id plus instance.feed_offset.
create function outbox.feed_xid() returns xid8 language sql volatile return pg_current_xact_id();

-- Written once, in the statement that deletes the pending row.
create table outbox.outcome (
  seq bigint primary key,
  xid xid8 not null default outbox.feed_xid(),
  ended_at timestamptz not null default outbox.now(),
  from_state outbox.state not null,
  state outbox.state not null,
  fence bigint,
  owner uuid,
  first_sent_at timestamptz,
  started_at timestamptz,
  sent_key uuid,
  approval_id bigint,
  attempt int not null,
  contract_id int,
  policy_version int,
  throttled int not null default 0,
  not_sent int not null default 0,
  status int,
  cause text,
  wire_digest bytea,
  excerpt text check (octet_length(excerpt) <= 4096),
  request_id text check (octet_length(request_id) <= 300),
  peer text,
  receipt text check (octet_length(receipt) <= 8192),
  external_id text check (octet_length(external_id) <= 500),
  decided_by text,
  evidence_id bigint,
  constraint outcome_move_is_legal check ((from_state = 'executing' and state in ('succeeded', 'rejected'))
    or (from_state = 'unknown' and state in ('succeeded', 'rejected'))
    or (from_state in ('proposed', 'authorized') and state = 'rejected')),
  constraint rejection_has_a_cause check (state <> 'rejected' or cause is not null)
);
create index outcome_ended_at on outbox.outcome using brin (ended_at);
create index outcome_cancelled on outbox.outcome (ended_at) where cause = 'cancelled';
create index outcome_xid on outbox.outcome (xid, seq);
-- By a hash, which is a fraction of most providers' ids in size: who looks for an id compares the hash and the id.
create index outcome_external_id on outbox.outcome (hashtextextended(external_id, 0)) where external_id is not null;

-- Exposures that did not end the operation. Throttles and NotSent are counters, never rows.
create table outbox.attempt (
  seq bigint not null,
  attempt int not null,
  fence bigint not null,
  owner uuid,
  cause text not null,
  contract_id int,
  sent_key uuid,
  wire_digest bytea,
  started_at timestamptz,
  ended_at timestamptz not null default outbox.now(),
  status int,
  excerpt text check (octet_length(excerpt) <= 4096),
  request_id text check (octet_length(request_id) <= 300),
  peer text,
  withdrawn boolean not null default false, -- the receiver refused our credential or forbade it: no effect, and no doubt
  primary key (seq, attempt)
);

-- Anything observed about an effect. Append-only.
create table outbox.evidence (
  evidence_id bigint generated always as identity primary key,
  seq bigint not null,
  attempt int,
  fence bigint,
  kind text not null check (kind in ('receipt', 'not_sent', 'late_answer', 'lookup', 'statement', 'callback')),
  verdict text check (verdict in ('confirmed', 'ended', 'partial', 'not_found', 'unknown')),
  external_id text check (octet_length(external_id) <= 500),
  receipt text check (octet_length(receipt) <= 8192),
  duplicates int not null default 0,
  status int,
  excerpt text check (octet_length(excerpt) <= 4096),
  request_id text check (octet_length(request_id) <= 300),
  sent_at timestamptz,
  observed_at timestamptz not null default outbox.now(),
  source text not null,
  stated_by text,
  note text check (octet_length(note) <= 4096)
);
create index evidence_seq on outbox.evidence (seq);
create index evidence_statement on outbox.evidence (observed_at) where kind = 'statement';
create index evidence_observed_at on outbox.evidence using brin (observed_at);

-- Which evidence outbox.contradiction looks at, however much there is: see outbox.compare_evidence(). More may be noted than contradicts.
create table outbox.objection (
  seq bigint not null,
  evidence_id bigint not null,
  primary key (seq, evidence_id)
);

-- A person's decision about exactly one action: it is bound to the digest.
create table outbox.approval (
  approval_id bigint generated always as identity primary key,
  seq bigint not null,
  digest bytea not null,
  decision text not null check (decision in ('approved', 'refused', 'revoked')),
  policy_version int not null,
  expires_at timestamptz,
  decided_by text not null,
  decided_at timestamptz not null default outbox.now(),
  reason text
);
create index approval_seq on outbox.approval (seq);
create index approval_decided_at on outbox.approval (decided_at);

-- Who may act on a lane. The key contains the fence: FOR KEY SHARE lets the renewal pass and excludes a takeover.
create table outbox.lane (
  receiver_id int not null references outbox.receiver,
  lane int not null,
  owner uuid,
  member_id uuid,
  fence bigint not null,
  receiver_fence bigint not null default 0,
  expires_at timestamptz not null default '-infinity',
  renewed_at timestamptz,
  idle boolean not null default false,
  bell text,
  crowd text[] not null default '{}', -- tenants whose operations fill it
  primary key (receiver_id, lane),
  unique (receiver_id, lane, fence)
) with (fillfactor = 50);

-- Live daemons, with their counters.
create table outbox.member (
  member_id uuid primary key,
  kind text not null check (kind in ('relay', 'reconciler')),
  host text not null,
  pid int not null,
  version text not null,
  receivers text[],
  started_at timestamptz not null default outbox.now(),
  seen_at timestamptz not null default outbox.now(), -- -infinity: it has left
  left_at timestamptz,
  counters jsonb not null default '{}'
) with (fillfactor = 50);

-- What remains of a purged operation, so that a repeated id still gets its answer instead of a second effect.
create table outbox.tombstone (
  tenant_id text not null,
  operation_id text not null,
  seq bigint not null,
  tool text not null,
  principal_id text not null,
  digest bytea not null,
  state outbox.state not null check (state in ('succeeded', 'rejected')),
  cause text,
  external_id text,
  receipt_digest bytea,
  ended_at timestamptz not null,
  purged_at timestamptz not null default outbox.now(),
  primary key (tenant_id, operation_id)
);
create index tombstone_age on outbox.tombstone (tool, ended_at);
create index tombstone_seq on outbox.tombstone (seq); -- evidence may still come

-- An ended operation of an ordering key of which an earlier attempt may still land: its successor waits until then.
create table outbox.landing (
  receiver_id int not null,
  ord bigint not null,
  seq bigint not null,
  until timestamptz not null,
  primary key (receiver_id, ord, seq)
);

-- Periodic work that one daemon at a time does (belt sweeps, expiry). What reads a long backlog takes its time: `took`, when it was done
-- last, so that it is done more seldom.
create table outbox.chore (
  name text primary key,
  next_at timestamptz not null default '-infinity',
  took interval not null default '0' check (took between interval '0' and interval '1 day')
);
