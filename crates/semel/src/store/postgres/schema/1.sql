-- Everything that one operation has lies in one bucket: the first eight bits of the hash of its topmost
-- operation's key. A transaction of Semel never needs two buckets, but for the creation of a step whose
-- own key leads to another one. So `bucket` is what to partition by, and part of every key.

CREATE TABLE semel.meta (
    name text PRIMARY KEY,
    value text NOT NULL
);
INSERT INTO semel.meta VALUES ('format', '0'), ('id', replace(gen_random_uuid()::text, '-', ''));

-- Numbers grow and have gaps: a transaction that does not commit uses some up. The number of a log entry
-- is one of these times 256, plus its bucket; an operation's place is the number of its first entry.
CREATE SEQUENCE semel.numbers;

CREATE TABLE semel.operations (
    bucket smallint NOT NULL,
    -- SHA-256 of namespace and key.
    key_hash bytea NOT NULL,
    place bigint NOT NULL,
    version bigint NOT NULL,
    fence bigint NOT NULL,
    -- `elsewhere` is no operation: the row of a step, which lies with its topmost operation, is found by
    -- this row's place.
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
    record bytea NOT NULL,
    PRIMARY KEY (bucket, key_hash)
) WITH (fillfactor = 80);
-- Records are short and hashes do not compress.
ALTER TABLE semel.operations ALTER record SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX operations_place ON semel.operations (place, bucket);
CREATE INDEX operations_open ON semel.operations (place)
    WHERE state IN ('pending', 'running', 'doubtful', 'dead');

CREATE TABLE semel.log (
    seq bigint NOT NULL,
    bucket smallint NOT NULL,
    place bigint,
    at timestamptz NOT NULL,
    command text NOT NULL,
    -- A random number: all entries that were committed together have the same.
    batch bigint NOT NULL,
    entry bytea NOT NULL,
    PRIMARY KEY (seq, bucket)
);
ALTER TABLE semel.log ALTER entry SET STORAGE EXTERNAL;

-- Packed already: a byte that says how, then the bytes.
CREATE TABLE semel.payloads (
    place bigint NOT NULL,
    bucket smallint NOT NULL,
    packed bytea NOT NULL,
    PRIMARY KEY (place, bucket)
);
ALTER TABLE semel.payloads ALTER packed SET STORAGE EXTERNAL;

CREATE TABLE semel.chunks (
    place bigint NOT NULL,
    bucket smallint NOT NULL,
    fence bigint NOT NULL,
    n bigint NOT NULL,
    stream smallint NOT NULL,
    packed bytea NOT NULL,
    PRIMARY KEY (place, bucket, fence, n)
);
ALTER TABLE semel.chunks ALTER packed SET STORAGE EXTERNAL;

CREATE TABLE semel.marks (
    name text PRIMARY KEY,
    value bytea NOT NULL
);

-- The functions are the statements that a node sends, kept here so that the server plans them once for
-- each of its processes, also behind a pgbouncer that gives every transaction to another one. They decide
-- nothing: they compare versions, write what they were given, and return what is stored. Their plans must
-- not depend on how full the tables were when they were made, so they always go by the index.

CREATE FUNCTION semel.clock() RETURNS bigint LANGUAGE sql VOLATILE
AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint';

-- Returns what is stored under keys, with payloads up to a size. A key that is not there gives no row,
-- and the last row, with no number, has only the time.
CREATE FUNCTION semel.look(a_home smallint[], a_key_hash bytea[], a_along integer)
RETURNS TABLE (n bigint, place bigint, record bytea, packed bytea, clock bigint)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT a.n, o.place, o.record, p.packed, NULL::bigint
        FROM unnest(a_home, a_key_hash) WITH ORDINALITY AS a (home, key_hash, n)
        JOIN semel.operations h ON h.bucket = a.home AND h.key_hash = a.key_hash
        JOIN semel.operations o ON o.key_hash = a.key_hash
            AND o.bucket = CASE h.state WHEN 'elsewhere' THEN (h.place & 255)::smallint ELSE a.home END
        LEFT JOIN semel.payloads p ON o.has_payload AND p.place = o.place AND p.bucket = o.bucket
            AND octet_length(p.packed) <= a_along;
    RETURN QUERY SELECT NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, semel.clock();
END
$$;

-- Writes a batch of changes, each of another key, in the order of their keys. A change is written if what
-- it was decided on is still there; of every other one the present record is returned.
--
-- a_kind: 0 a new record, 1 a changed one, 2 one that is removed, 3 only an entry in the log.
-- a_payload: 0 keep it, 1 store a_packed, 2 take the stream a_stream_fence, 3 erase it, 4 and all streams.
-- a_rare: some change replaces or erases a payload, is removed, has a guard, or is a new step.
-- outcome: 0 something else is stored, 1 written, 2 the guard has changed.
CREATE FUNCTION semel.apply(
    a_batch bigint, a_patience text, a_along integer, a_rare boolean,
    a_kind smallint[], a_home smallint[], a_bucket smallint[], a_key_hash bytea[], a_place bigint[],
    a_expected bigint[], a_guard_place bigint[], a_guard_version bigint[],
    a_version bigint[], a_fence bigint[], a_state text[], a_namespace text[], a_key text[], a_name text[],
    a_door text[], a_queue text[], a_attempt integer[], a_created_at timestamptz[],
    a_settled_at timestamptz[], a_lease_until timestamptz[], a_record bytea[],
    a_payload smallint[], a_packed bytea[], a_stream_fence bigint[],
    a_at timestamptz[], a_command text[], a_entry bytea[]
)
RETURNS TABLE (n bigint, outcome smallint, place bigint, record bytea, packed bytea, clock bigint, heard boolean)
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_child bigint;
    v_place bigint;
    v_won bigint[];
    v_places bigint[];
    v_heard boolean;
    v_clock bigint;
BEGIN
    -- An answer is given after COMMIT, so COMMIT must mean that it is on disk.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', a_patience, true);
    -- A node that was stopped in the middle of a transaction must not hold the others up.
    PERFORM set_config('idle_in_transaction_session_timeout', '5s', true);
    -- Whoever reads the log waits for the transactions that hold such a lock, and whoever lost the answer
    -- to this one waits for this one. It is taken before any number is.
    PERFORM pg_advisory_xact_lock(1936026988, (a_batch & 2147483647)::integer);

    IF a_rare THEN
        -- What is locked stays as it is until the batch is written.
        PERFORM FROM unnest(a_guard_place) AS a (place)
            JOIN semel.operations o ON o.place = a.place AND o.bucket = (a.place & 255)::smallint
            ORDER BY o.place FOR SHARE OF o;
        PERFORM FROM unnest(a_kind, a_bucket, a_key_hash) WITH ORDINALITY AS a (kind, bucket, key_hash, n)
            JOIN semel.operations o ON o.bucket = a.bucket AND o.key_hash = a.key_hash
            WHERE a.kind IN (1, 2) ORDER BY a.n FOR UPDATE OF o;
        DELETE FROM semel.chunks c
            USING unnest(a_kind, a_bucket, a_key_hash, a_place, a_expected, a_payload, a_stream_fence)
                AS a (kind, bucket, key_hash, place, expected, payload, stream_fence)
            JOIN semel.operations o ON o.bucket = a.bucket AND o.key_hash = a.key_hash
            WHERE a.kind IN (1, 2) AND a.payload > 0 AND o.place = a.place AND o.version = a.expected
                AND c.place = a.place AND c.bucket = a.bucket
                AND (a.payload = 4 OR (c.fence = o.stream_fence AND c.fence IS DISTINCT FROM a.stream_fence));
        DELETE FROM semel.payloads p
            USING unnest(a_kind, a_bucket, a_key_hash, a_place, a_expected, a_payload)
                AS a (kind, bucket, key_hash, place, expected, payload)
            JOIN semel.operations o ON o.bucket = a.bucket AND o.key_hash = a.key_hash
            WHERE a.kind IN (1, 2) AND a.payload > 1 AND o.place = a.place AND o.version = a.expected
                AND p.place = a.place AND p.bucket = a.bucket;
        DELETE FROM semel.operations h
            USING unnest(a_kind, a_home, a_bucket, a_key_hash, a_place, a_expected)
                AS a (kind, home, bucket, key_hash, place, expected)
            JOIN semel.operations o ON o.bucket = a.bucket AND o.key_hash = a.key_hash
            WHERE a.kind = 2 AND o.place = a.place AND o.version = a.expected
                AND h.bucket = a.home AND h.key_hash = a.key_hash AND h.state = 'elsewhere';
        -- A new step is known where its own key leads to, before it lies where its topmost operation is.
        FOR v_child IN
            SELECT a.n FROM unnest(a_kind, a_home, a_bucket, a_guard_place, a_guard_version)
                WITH ORDINALITY AS a (kind, home, bucket, guard_place, guard_version, n)
            WHERE a.kind = 0 AND a.home <> a.bucket AND (a.guard_place IS NULL OR EXISTS (
                SELECT FROM semel.operations g WHERE g.place = a.guard_place
                    AND g.bucket = (a.guard_place & 255)::smallint AND g.version = a.guard_version))
            ORDER BY a.n
        LOOP
            INSERT INTO semel.operations (bucket, key_hash, place, version, fence, state, has_payload, record)
                VALUES (a_home[v_child], a_key_hash[v_child],
                    nextval('semel.numbers') * 256 + a_bucket[v_child], 0, 0, 'elsewhere', false, '')
                ON CONFLICT DO NOTHING RETURNING place INTO v_place;
            IF FOUND THEN
                a_place[v_child] := v_place;
            ELSE
                -- Another one has the key; this change is none any more.
                a_kind[v_child] := -1;
            END IF;
        END LOOP;
    END IF;

    WITH a AS MATERIALIZED (
        SELECT * FROM unnest(a_kind, a_bucket, a_key_hash, a_place, a_expected, a_guard_place, a_guard_version,
            a_version, a_fence, a_state, a_namespace, a_key, a_name, a_door, a_queue, a_attempt, a_created_at,
            a_settled_at, a_lease_until, a_record, a_payload, a_packed, a_stream_fence, a_at, a_command, a_entry)
        WITH ORDINALITY AS a (kind, bucket, key_hash, place, expected, guard_place, guard_version,
            version, fence, state, namespace, key, name, door, queue, attempt, created_at,
            settled_at, lease_until, record, payload, packed, stream_fence, at, command, entry, n)
        WHERE guard_place IS NULL OR EXISTS (
            SELECT FROM semel.operations g WHERE g.place = a.guard_place
                AND g.bucket = (a.guard_place & 255)::smallint AND g.version = a.guard_version)
    ), made AS (
        INSERT INTO semel.operations (bucket, key_hash, place, version, fence, state, namespace, key, name,
            door, queue, attempt, created_at, settled_at, lease_until, has_payload, stream_fence, record)
        SELECT a.bucket, a.key_hash,
            CASE a.place WHEN 0 THEN nextval('semel.numbers') * 256 + a.bucket ELSE a.place END,
            a.version, a.fence, a.state, a.namespace, a.key, a.name, a.door, a.queue, a.attempt, a.created_at,
            a.settled_at, a.lease_until, a.payload = 1, a.stream_fence, a.record
        FROM a WHERE a.kind = 0 ORDER BY a.n
        ON CONFLICT DO NOTHING
        RETURNING key_hash, place
    ), changed AS (
        UPDATE semel.operations o SET version = a.version, fence = a.fence, state = a.state,
            namespace = a.namespace, key = a.key, name = a.name, door = a.door, queue = a.queue,
            attempt = a.attempt, created_at = a.created_at, settled_at = a.settled_at,
            lease_until = a.lease_until, record = a.record,
            has_payload = CASE a.payload WHEN 0 THEN o.has_payload ELSE a.payload = 1 END,
            stream_fence = CASE a.payload WHEN 0 THEN o.stream_fence ELSE a.stream_fence END
        FROM a WHERE a.kind = 1 AND o.bucket = a.bucket AND o.key_hash = a.key_hash AND o.place = a.place
            AND o.version = a.expected
        RETURNING a.n, o.place
    ), removed AS (
        DELETE FROM semel.operations o USING a
        WHERE a.kind = 2 AND o.bucket = a.bucket AND o.key_hash = a.key_hash AND o.place = a.place
            AND o.version = a.expected
        RETURNING a.n, o.place
    ), won AS (
        SELECT a.n, made.place FROM made JOIN a USING (key_hash)
        UNION ALL SELECT n, place FROM changed
        UNION ALL SELECT n, place FROM removed
        UNION ALL SELECT a.n, NULL FROM a WHERE a.kind = 3 AND NOT EXISTS (
            SELECT FROM semel.operations o WHERE o.bucket = a.bucket AND o.key_hash = a.key_hash)
    ), logged AS (
        INSERT INTO semel.log (seq, bucket, place, at, command, batch, entry)
        SELECT CASE a.kind WHEN 0 THEN won.place ELSE nextval('semel.numbers') * 256 + a.bucket END,
            a.bucket, won.place, a.at, a.command, a_batch, a.entry
        FROM won JOIN a USING (n)
    ), paid AS (
        INSERT INTO semel.payloads AS p (place, bucket, packed)
        SELECT won.place, a.bucket, a.packed FROM won JOIN a USING (n) WHERE a.payload = 1
        ON CONFLICT (place, bucket) DO UPDATE SET packed = excluded.packed
    )
    SELECT array_agg(won.n), array_agg(won.place) INTO v_won, v_places FROM won;

    -- Somebody listens as long as this lock cannot be had.
    v_heard := NOT pg_try_advisory_lock(1936026989, 0);
    IF NOT v_heard THEN
        PERFORM pg_advisory_unlock(1936026989, 0);
    END IF;
    v_clock := semel.clock();
    RETURN QUERY SELECT w.n, 1::smallint, w.place, NULL::bytea, NULL::bytea, v_clock, v_heard
        FROM unnest(v_won, v_places) AS w (n, place);
    IF coalesce(cardinality(v_won), 0) < cardinality(a_kind) THEN
        -- A statement of its own, so that it sees what others have committed in the meantime.
        RETURN QUERY
            SELECT a.n, CASE WHEN a.guard_place IS NULL OR EXISTS (
                    SELECT FROM semel.operations g WHERE g.place = a.guard_place
                        AND g.bucket = (a.guard_place & 255)::smallint AND g.version = a.guard_version)
                THEN 0 ELSE 2 END::smallint, o.place, o.record, p.packed, v_clock, v_heard
            FROM unnest(a_home, a_key_hash, a_guard_place, a_guard_version)
                WITH ORDINALITY AS a (home, key_hash, guard_place, guard_version, n)
            LEFT JOIN semel.operations h ON h.bucket = a.home AND h.key_hash = a.key_hash
            LEFT JOIN semel.operations o ON o.key_hash = a.key_hash
                AND o.bucket = CASE h.state WHEN 'elsewhere' THEN (h.place & 255)::smallint ELSE a.home END
            LEFT JOIN semel.payloads p ON o.has_payload AND p.place = o.place AND p.bucket = o.bucket
                AND octet_length(p.packed) <= a_along
            WHERE v_won IS NULL OR a.n <> ALL (v_won);
    END IF;
END
$$;
