CREATE TABLE semel.meta (
    name text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO semel.meta VALUES ('format', '0'), ('id', replace(gen_random_uuid()::text, '-', ''));

-- One row: the end of the log, the last stored time, the last transaction. Whoever writes locks it first.
CREATE TABLE semel.head (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    seq bigint NOT NULL,
    stamp bytea,
    batch bytea
) WITH (fillfactor = 10);
INSERT INTO semel.head (seq) VALUES (0);

CREATE TABLE semel.operations (
    -- The number of its first log entry.
    place bigint PRIMARY KEY,
    -- SHA-256 of namespace and key, and the same of the topmost operation that this one is a step of.
    key_hash bytea NOT NULL UNIQUE,
    root_hash bytea NOT NULL,
    version bigint NOT NULL,
    fence bigint NOT NULL,
    state text NOT NULL,
    namespace text,
    key text,
    name text,
    door text,
    queue text,
    attempt integer,
    created_at timestamptz,
    settled_at timestamptz,
    lease_until timestamptz,
    -- Where its payload lies: in `payloads`, or in `chunks` as the stream of the attempt with this fence.
    has_payload boolean NOT NULL,
    stream_fence bigint,
    record bytea NOT NULL
) WITH (fillfactor = 80);
-- Records are short and hashes do not compress.
ALTER TABLE semel.operations ALTER record SET STORAGE EXTERNAL;
CREATE INDEX open_operations ON semel.operations (place)
    WHERE state IN ('pending', 'running', 'doubtful', 'dead');

CREATE TABLE semel.log (
    seq bigint PRIMARY KEY,
    at timestamptz NOT NULL,
    place bigint,
    command text NOT NULL,
    -- The transaction, with its first entry only.
    batch bytea,
    entry bytea NOT NULL
);

-- Packed already: a byte that says how, then the bytes.
CREATE TABLE semel.payloads (
    place bigint PRIMARY KEY,
    packed bytea NOT NULL
);
ALTER TABLE semel.payloads ALTER packed SET STORAGE EXTERNAL;

CREATE TABLE semel.chunks (
    place bigint NOT NULL,
    fence bigint NOT NULL,
    n bigint NOT NULL,
    stream smallint NOT NULL,
    packed bytea NOT NULL,
    PRIMARY KEY (place, fence, n)
);
ALTER TABLE semel.chunks ALTER packed SET STORAGE EXTERNAL;

CREATE TABLE semel.marks (
    name text PRIMARY KEY,
    value bytea NOT NULL
);
