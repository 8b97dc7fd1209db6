-- Where tasks stand in the lines of their queues, those that wait in the order in which they are taken. A queue has tasks
-- of all buckets, so this table has none: a place leads to its own. Older formats had no workers, and so have no lines.
CREATE TABLE semel.lines (
    queue bigint NOT NULL,
    taken smallint NOT NULL,
    rank smallint NOT NULL,
    lane bigint NOT NULL,
    at bigint NOT NULL,
    place bigint NOT NULL,
    until bigint,
    PRIMARY KEY (queue, taken, rank, lane, at, place)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);

-- Finds tasks that wait in the line of a queue and are due: the highest priority first, and of each priority one of
-- every lane in turn, beginning behind the lane that had its turn last; each with what its workers are given, packed, if that
-- is at most so long. The last row, without a place, has the time.
CREATE FUNCTION semel.waiting(
    a_queue bigint, a_now bigint, a_after bigint, a_skip integer, a_limit integer, a_lanes integer, a_along integer
)
RETURNS TABLE (place bigint, record bytea, clock bigint, input bytea)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_rank smallint;
    v_lane bigint;
    v_after bigint;
    v_wrapped boolean;
    v_lanes bigint[];
    v_share integer;
    v_found bigint[] := '{}';
    v_of_rank bigint[];
BEGIN
    SELECT l.rank INTO v_rank FROM semel.lines l WHERE l.queue = a_queue AND l.taken = 0
        ORDER BY l.rank LIMIT 1;
    WHILE v_rank IS NOT NULL AND cardinality(v_found) < a_limit LOOP
        v_lanes := '{}';
        v_after := a_after;
        v_wrapped := false;
        FOR i IN 1..a_lanes LOOP
            IF v_after IS NULL THEN
                SELECT l.lane INTO v_lane FROM semel.lines l WHERE l.queue = a_queue AND l.taken = 0
                    AND l.rank = v_rank ORDER BY l.lane LIMIT 1;
            ELSE
                SELECT l.lane INTO v_lane FROM semel.lines l WHERE l.queue = a_queue AND l.taken = 0
                    AND l.rank = v_rank AND l.lane > v_after ORDER BY l.lane LIMIT 1;
            END IF;
            IF v_lane IS NULL OR (v_wrapped AND v_lane > a_after) THEN
                EXIT WHEN v_wrapped;
                v_wrapped := true;
                v_after := NULL;
                CONTINUE;
            END IF;
            PERFORM FROM semel.lines l WHERE l.queue = a_queue AND l.taken = 0 AND l.rank = v_rank
                AND l.lane = v_lane AND l.at <= a_now AND (l.until IS NULL OR l.until > a_now)
                ORDER BY l.at, l.place LIMIT 1 OFFSET a_skip;
            IF FOUND THEN
                v_lanes := v_lanes || v_lane;
                EXIT WHEN cardinality(v_lanes) >= a_limit - cardinality(v_found);
            END IF;
            v_after := v_lane;
        END LOOP;
        IF cardinality(v_lanes) > 0 THEN
            v_share := ceil((a_limit - cardinality(v_found))::numeric / cardinality(v_lanes));
            SELECT array_agg(due.place ORDER BY due.nth, due.turn) INTO v_of_rank FROM (
                SELECT t.place, t.nth, lanes.turn
                FROM unnest(v_lanes) WITH ORDINALITY AS lanes (lane, turn)
                CROSS JOIN LATERAL (
                    SELECT l.place, row_number() OVER (ORDER BY l.at, l.place) AS nth FROM (
                        SELECT k.place, k.at FROM semel.lines k WHERE k.queue = a_queue AND k.taken = 0
                            AND k.rank = v_rank AND k.lane = lanes.lane AND k.at <= a_now
                            AND (k.until IS NULL OR k.until > a_now)
                            ORDER BY k.at, k.place LIMIT v_share OFFSET a_skip
                    ) AS l
                ) AS t
                ORDER BY t.nth, lanes.turn
                LIMIT a_limit - cardinality(v_found)
            ) AS due;
            v_found := v_found || v_of_rank;
        END IF;
        SELECT l.rank INTO v_rank FROM semel.lines l WHERE l.queue = a_queue AND l.taken = 0
            AND l.rank > v_rank ORDER BY l.rank LIMIT 1;
    END LOOP;
    RETURN QUERY SELECT f.place, o.record, NULL::bigint, c.packed
        FROM unnest(v_found) WITH ORDINALITY AS f (place, n)
        JOIN semel.operations o ON o.place = f.place AND o.bucket = (f.place & 255)::smallint
        LEFT JOIN semel.chunks c ON c.place = f.place AND c.bucket = (f.place & 255)::smallint AND c.fence = 0
            AND octet_length(c.packed) <= a_along
        ORDER BY f.n;
    place := NULL;
    record := NULL;
    input := NULL;
    clock := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    RETURN NEXT;
END
$$;

-- An older version writes nothing any more: it would leave the table above as it is.
DROP FUNCTION semel.apply(
    bigint, text, integer, boolean,
    smallint[], smallint[], smallint[], bytea[], bigint[],
    bigint[], bigint[], bigint[],
    bigint[], bigint[], text[], text[], text[], text[],
    text[], text[], integer[], timestamptz[],
    timestamptz[], timestamptz[], bytea[],
    smallint[], boolean[], bytea[], bigint[],
    timestamptz[], text[], boolean[], bytea[],
    bigint[], bigint[]
);

-- Writes a batch of changes, each of another key, in the order of their keys. A change is written if what
-- it was decided on is still there; of every other one the present record is returned. The last row, with
-- no number, has the time, and whether some node listens.
--
-- a_plain: no change does more than write rows, and there are many.
-- a_kind: 0 a new record, 1 a changed one, 2 one that is removed, 3 only an entry in the log.
-- a_payload: 0 keep it, 1 store a_packed, 2 take the stream a_stream_fence, 3 erase it, 4 and all streams.
-- a_replaces: whether there may be another payload before.
-- a_enters, a_leaves: among which kin the record counts from now on, and no more; both are NULL when no
-- change of the batch has to do with that.
-- a_line: what the lines of tasks have to do, eight numbers for each spot: the change's number, 1 if the record enters and 0 if
-- it leaves, queue, whether it is taken, rank, lane, from when, until when (-1 for ever); NULL when there is nothing to do.
-- a_input: what the workers of a new task are given, packed; NULL when no change brings any.
-- a_bounds: how many tasks workers may have, four numbers for each change: queue, lane, how many of the queue, how many of
-- the lane, each NULL where there is no limit; NULL as a whole when no change has any.
-- a_report: whether it tells what became of an attempt, which a closed store still takes.
-- outcome: 0 something else is stored, 1 written, 2 the guard has changed, 3 the ledger has moved (the
-- record says where to), 4 the store is a copy.
CREATE FUNCTION semel.apply(
    a_batch bigint, a_patience text, a_along integer, a_plain boolean,
    a_kind smallint[], a_home smallint[], a_bucket smallint[], a_key_hash bytea[], a_place bigint[],
    a_expected bigint[], a_guard_place bigint[], a_guard_version bigint[],
    a_version bigint[], a_fence bigint[], a_state text[], a_namespace text[], a_key text[], a_name text[],
    a_door text[], a_queue text[], a_attempt integer[], a_created_at timestamptz[],
    a_settled_at timestamptz[], a_lease_until timestamptz[], a_record bytea[],
    a_payload smallint[], a_replaces boolean[], a_packed bytea[], a_stream_fence bigint[],
    a_at timestamptz[], a_command text[], a_report boolean[], a_entry bytea[],
    a_enters bigint[], a_leaves bigint[], a_line bigint[], a_input bytea[], a_bounds bigint[]
)
RETURNS TABLE (n integer, outcome smallint, place bigint, record bytea, packed bytea, clock bigint, heard boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    v_place bigint;
    v_seq bigint;
    v_stream bigint;
    v_won boolean;
    v_erases boolean;
    v_lost integer[] := '{}';
    v_places bigint[];
    v_written bigint[] := '{}';
    v_spots bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(a_kind)]);
    v_standing text;
    v_free boolean;
    v_turn integer;
    v_room boolean;
BEGIN
    -- An answer is given after COMMIT, so COMMIT must mean that it is on disk.
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- Nobody waits for ever, and a node that was stopped in the middle must not hold the others up.
    PERFORM set_config('lock_timeout', a_patience, true),
        set_config('idle_in_transaction_session_timeout', '5s', true),
    -- Whoever reads the log waits for the transactions that hold such a lock, and whoever lost the answer
    -- to this one waits for this one. It is taken before any number is.
        pg_advisory_xact_lock(1936026988, (a_batch & 2147483647)::integer);

    -- After the lock was taken: whoever closes the store waits for those who have read that it is open.
    -- Whoever fills or adopts a copy says so in its transaction.
    SELECT m.value INTO v_standing FROM semel.meta m WHERE m.name = 'standing';
    v_standing := coalesce(v_standing, 'copy');
    v_free := v_standing = 'open' OR coalesce(current_setting('semel.fills', true), '') = 'on';

    -- Whoever takes from a queue with limits takes alone: what is counted below is all there is. The locks are taken in one
    -- order, and before any row is.
    IF a_bounds IS NOT NULL THEN
        FOR v_turn IN SELECT DISTINCT (a_bounds[g] & 2147483647)::integer
            FROM generate_series(1, cardinality(a_bounds), 4) AS g WHERE a_bounds[g] IS NOT NULL ORDER BY 1
        LOOP
            PERFORM pg_advisory_xact_lock(1936026990, v_turn);
        END LOOP;
    END IF;

    -- Many changes that do nothing else are written together: a statement for each table.
    IF a_plain AND v_free THEN
        SELECT array_agg(CASE a.kind WHEN 0 THEN nextval('semel.numbers') * 256 + a.bucket ELSE a.place END)
            INTO v_places FROM unnest(a_kind, a_bucket, a_place) AS a (kind, bucket, place);
        IF 0 = ANY (a_kind) THEN
            WITH made AS (
                INSERT INTO semel.operations (bucket, key_hash, place, version, fence, state, namespace, key,
                    name, door, queue, attempt, created_at, settled_at, lease_until, has_payload,
                    stream_fence, record)
                SELECT a.bucket, a.key_hash, a.place, a.version, a.fence, a.state, a.namespace, a.key, a.name,
                    a.door, a.queue, a.attempt, a.created_at, a.settled_at, a.lease_until, a.payload = 1,
                    NULL, a.record
                FROM unnest(a_kind, a_bucket, a_key_hash, v_places, a_version, a_fence, a_state, a_namespace,
                    a_key, a_name, a_door, a_queue, a_attempt, a_created_at, a_settled_at, a_lease_until,
                    a_payload, a_record)
                AS a (kind, bucket, key_hash, place, version, fence, state, namespace,
                    key, name, door, queue, attempt, created_at, settled_at, lease_until,
                    payload, record)
                WHERE a.kind = 0
                ON CONFLICT DO NOTHING RETURNING place
            )
            SELECT coalesce(array_agg(place), '{}') INTO v_written FROM made;
        END IF;
        IF 1 = ANY (a_kind) THEN
            WITH changed AS (
                UPDATE semel.operations o SET version = a.version, fence = a.fence, state = a.state,
                    namespace = a.namespace, key = a.key, name = a.name, door = a.door, queue = a.queue,
                    attempt = a.attempt, created_at = a.created_at, settled_at = a.settled_at,
                    lease_until = a.lease_until, record = a.record,
                    has_payload = o.has_payload OR a.payload = 1
                FROM unnest(a_kind, a_bucket, a_key_hash, a_place, a_expected, a_version, a_fence, a_state,
                    a_namespace, a_key, a_name, a_door, a_queue, a_attempt, a_created_at, a_settled_at,
                    a_lease_until, a_payload, a_record)
                AS a (kind, bucket, key_hash, place, expected, version, fence, state,
                    namespace, key, name, door, queue, attempt, created_at, settled_at,
                    lease_until, payload, record)
                WHERE a.kind = 1 AND o.bucket = a.bucket AND o.key_hash = a.key_hash AND o.place = a.place
                    AND o.version = a.expected
                RETURNING o.place
            )
            SELECT v_written || array_agg(place) INTO v_written FROM changed;
        END IF;
        INSERT INTO semel.log (seq, bucket, place, at, command, batch, entry)
            SELECT CASE a.kind WHEN 0 THEN a.place ELSE nextval('semel.numbers') * 256 + a.bucket END,
                a.bucket, a.place, a.at, a.command, a_batch, a.entry
            FROM unnest(a_kind, a_bucket, v_places, a_at, a_command, a_entry)
                AS a (kind, bucket, place, at, command, entry)
            WHERE a.place = ANY (v_written);
        IF 1 = ANY (a_payload) THEN
            INSERT INTO semel.payloads (place, bucket, packed)
                SELECT a.place, a.bucket, a.packed
                FROM unnest(a_bucket, v_places, a_payload, a_packed) AS a (bucket, place, payload, packed)
                WHERE a.payload = 1 AND a.place = ANY (v_written)
                ON CONFLICT (place, bucket) DO UPDATE SET packed = excluded.packed;
        END IF;
        IF a_leaves IS NOT NULL THEN
            DELETE FROM semel.kin k USING unnest(a_leaves, v_places) AS a (kin, place)
                WHERE k.kin = a.kin AND k.place = a.place AND a.place = ANY (v_written);
        END IF;
        IF a_enters IS NOT NULL THEN
            INSERT INTO semel.kin (kin, place)
                SELECT a.kin, a.place FROM unnest(a_enters, v_places) AS a (kin, place)
                WHERE a.kin IS NOT NULL AND a.place = ANY (v_written)
                ON CONFLICT DO NOTHING;
        END IF;
        SELECT array_agg(CASE WHEN a.place = ANY (v_written) THEN a.place END ORDER BY a.n) INTO v_spots
            FROM unnest(v_places) WITH ORDINALITY AS a (place, n);
        RETURN QUERY SELECT a.n::integer, 1::smallint, a.place, NULL::bytea, NULL::bytea, NULL::bigint, NULL::boolean
            FROM unnest(v_places) WITH ORDINALITY AS a (place, n) WHERE a.place = ANY (v_written);
        IF cardinality(v_written) < cardinality(v_places) THEN
            SELECT array_agg(a.n) INTO v_lost
                FROM unnest(v_places) WITH ORDINALITY AS a (place, n) WHERE a.place <> ALL (v_written);
        END IF;
    END IF;

    FOR i IN 1..CASE WHEN a_plain AND v_free THEN 0 ELSE cardinality(a_kind) END LOOP
        n := i;
        v_place := a_place[i];
        IF NOT v_free AND (v_standing <> 'closed' OR NOT a_report[i]) THEN
            -- Whoever was overtaken hears of that, as it may be all that there is to know.
            IF a_kind[i] IN (0, 3) THEN
                v_won := NOT EXISTS (SELECT FROM semel.operations o
                    WHERE o.bucket = a_home[i] AND o.key_hash = a_key_hash[i]);
            ELSE
                v_won := EXISTS (SELECT FROM semel.operations o WHERE o.place = a_place[i]
                    AND o.bucket = a_bucket[i] AND o.version = a_expected[i]);
            END IF;
            IF v_won THEN
                outcome := CASE v_standing WHEN 'closed' THEN 3 ELSE 4 END;
                place := NULL;
                SELECT convert_to(m.value, 'UTF8') INTO record FROM semel.meta m WHERE m.name = 'moved_to';
                RETURN NEXT;
                record := NULL;
            ELSE
                v_lost := v_lost || i;
            END IF;
            CONTINUE;
        END IF;
        IF a_guard_place[i] IS NOT NULL THEN
            PERFORM FROM semel.operations g WHERE g.place = a_guard_place[i]
                AND g.bucket = (a_guard_place[i] & 255)::smallint AND g.version = a_guard_version[i] FOR SHARE;
            IF NOT FOUND THEN
                outcome := 2;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        v_room := true;
        IF a_bounds[i * 4 - 1] IS NOT NULL THEN
            SELECT count(*) < a_bounds[i * 4 - 1] INTO v_room FROM (SELECT FROM semel.lines l
                WHERE l.queue = a_bounds[i * 4 - 3] AND l.taken = 1 LIMIT a_bounds[i * 4 - 1]) AS of_queue;
        END IF;
        IF v_room AND a_bounds[i * 4] IS NOT NULL THEN
            SELECT count(*) < a_bounds[i * 4] INTO v_room FROM (SELECT FROM semel.lines l
                WHERE l.queue = a_bounds[i * 4 - 3] AND l.taken = 1 AND l.rank = 0
                    AND l.lane = a_bounds[i * 4 - 2] LIMIT a_bounds[i * 4]) AS of_lane;
        END IF;
        IF NOT v_room THEN
            outcome := 2;
            RETURN NEXT;
            CONTINUE;
        END IF;
        CASE a_kind[i]
        WHEN 0 THEN
            v_seq := nextval('semel.numbers') * 256 + a_bucket[i];
            v_place := v_seq;
            v_won := true;
            IF a_home[i] <> a_bucket[i] THEN
                -- A new step is known where its own key leads to, before it lies where its root does.
                INSERT INTO semel.operations
                    (bucket, key_hash, place, version, fence, state, has_payload, record)
                    VALUES (a_home[i], a_key_hash[i], v_seq, 0, 0, 'elsewhere', false, '')
                    ON CONFLICT DO NOTHING;
                v_won := FOUND;
            END IF;
            IF v_won THEN
                INSERT INTO semel.operations (bucket, key_hash, place, version, fence, state, namespace, key,
                        name, door, queue, attempt, created_at, settled_at, lease_until, has_payload,
                        stream_fence, record)
                    VALUES (a_bucket[i], a_key_hash[i], v_seq, a_version[i], a_fence[i], a_state[i],
                        a_namespace[i], a_key[i], a_name[i], a_door[i], a_queue[i], a_attempt[i],
                        a_created_at[i], a_settled_at[i], a_lease_until[i], a_payload[i] = 1,
                        a_stream_fence[i], a_record[i])
                    ON CONFLICT DO NOTHING;
                v_won := FOUND;
            END IF;
        WHEN 1 THEN
            v_erases := a_payload[i] > 1 OR a_replaces[i];
            IF v_erases THEN
                SELECT o.stream_fence INTO v_stream FROM semel.operations o
                    WHERE o.bucket = a_bucket[i] AND o.key_hash = a_key_hash[i] FOR UPDATE;
            END IF;
            UPDATE semel.operations o SET version = a_version[i], fence = a_fence[i], state = a_state[i],
                    namespace = a_namespace[i], key = a_key[i], name = a_name[i], door = a_door[i],
                    queue = a_queue[i], attempt = a_attempt[i], created_at = a_created_at[i],
                    settled_at = a_settled_at[i], lease_until = a_lease_until[i], record = a_record[i],
                    has_payload = CASE a_payload[i] WHEN 0 THEN o.has_payload ELSE a_payload[i] = 1 END,
                    stream_fence = CASE a_payload[i] WHEN 0 THEN o.stream_fence ELSE a_stream_fence[i] END
                WHERE o.bucket = a_bucket[i] AND o.key_hash = a_key_hash[i] AND o.place = a_place[i]
                    AND o.version = a_expected[i];
            v_won := FOUND;
            IF v_won AND v_erases THEN
                DELETE FROM semel.chunks c WHERE c.place = a_place[i] AND c.bucket = a_bucket[i]
                    AND (a_payload[i] = 4
                        OR (c.fence = v_stream AND c.fence IS DISTINCT FROM a_stream_fence[i]));
                DELETE FROM semel.payloads p
                    WHERE a_payload[i] > 1 AND p.place = a_place[i] AND p.bucket = a_bucket[i];
            END IF;
        WHEN 2 THEN
            DELETE FROM semel.operations o WHERE o.bucket = a_bucket[i] AND o.key_hash = a_key_hash[i]
                AND o.place = a_place[i] AND o.version = a_expected[i];
            v_won := FOUND;
            IF v_won THEN
                DELETE FROM semel.chunks c WHERE c.place = a_place[i] AND c.bucket = a_bucket[i];
                DELETE FROM semel.payloads p WHERE p.place = a_place[i] AND p.bucket = a_bucket[i];
                DELETE FROM semel.operations h WHERE a_home[i] <> a_bucket[i]
                    AND h.bucket = a_home[i] AND h.key_hash = a_key_hash[i];
            END IF;
        ELSE
            v_place := NULL;
            v_won := NOT EXISTS (SELECT FROM semel.operations o
                WHERE o.bucket = a_home[i] AND o.key_hash = a_key_hash[i]);
        END CASE;
        IF NOT v_won THEN
            v_lost := v_lost || i;
            CONTINUE;
        END IF;
        IF a_kind[i] <> 0 THEN
            -- Now that the row is locked: whoever relied on what it was has a lower number.
            v_seq := nextval('semel.numbers') * 256 + a_bucket[i];
        END IF;
        INSERT INTO semel.log (seq, bucket, place, at, command, batch, entry)
            VALUES (v_seq, a_bucket[i], v_place, a_at[i], a_command[i], a_batch, a_entry[i]);
        IF a_payload[i] = 1 THEN
            INSERT INTO semel.payloads AS p (place, bucket, packed) VALUES (v_place, a_bucket[i], a_packed[i])
                ON CONFLICT (place, bucket) DO UPDATE SET packed = excluded.packed;
        END IF;
        IF a_leaves[i] IS NOT NULL THEN
            DELETE FROM semel.kin k WHERE k.kin = a_leaves[i] AND k.place = v_place;
        END IF;
        IF a_enters[i] IS NOT NULL THEN
            INSERT INTO semel.kin (kin, place) VALUES (a_enters[i], v_place) ON CONFLICT DO NOTHING;
        END IF;
        v_spots[i] := v_place;
        IF a_bounds[i * 4 - 3] IS NOT NULL THEN
            -- At once, so that the next one is counted with it.
            INSERT INTO semel.lines (queue, taken, rank, lane, at, place)
                VALUES (a_bounds[i * 4 - 3], 1, 0, a_bounds[i * 4 - 2], 0, v_place) ON CONFLICT DO NOTHING;
        END IF;
        outcome := 1;
        place := v_place;
        RETURN NEXT;
    END LOOP;

    -- Spots are left before others are taken: a record may do both.
    IF a_line IS NOT NULL THEN
        DELETE FROM semel.lines l USING generate_series(0, cardinality(a_line) - 8, 8) AS g
            WHERE a_line[g + 2] = 0 AND l.queue = a_line[g + 3] AND l.taken = a_line[g + 4]::smallint
                AND l.rank = a_line[g + 5]::smallint AND l.lane = a_line[g + 6] AND l.at = a_line[g + 7]
                AND l.place = v_spots[a_line[g + 1]::integer];
        INSERT INTO semel.lines (queue, taken, rank, lane, at, place, until)
            SELECT a_line[g + 3], a_line[g + 4]::smallint, a_line[g + 5]::smallint, a_line[g + 6],
                a_line[g + 7], v_spots[a_line[g + 1]::integer], nullif(a_line[g + 8], -1)
            FROM generate_series(0, cardinality(a_line) - 8, 8) AS g
            WHERE a_line[g + 2] = 1 AND v_spots[a_line[g + 1]::integer] IS NOT NULL
            ON CONFLICT DO NOTHING;
    END IF;
    IF a_input IS NOT NULL THEN
        INSERT INTO semel.chunks (place, bucket, fence, n, stream, packed)
            SELECT a.place, a.place & 255, 0, 1, 0, a.packed
            FROM unnest(v_spots, a_input) AS a (place, packed)
            WHERE a.place IS NOT NULL AND a.packed IS NOT NULL
            ON CONFLICT DO NOTHING;
    END IF;

    IF cardinality(v_lost) > 0 THEN
        -- What others have committed in the meantime.
        RETURN QUERY SELECT lost.n, 0::smallint, o.place, o.record, o.packed, NULL::bigint, NULL::boolean
            FROM unnest(v_lost) WITH ORDINALITY AS lost (n, i)
            LEFT JOIN semel.look(
                (SELECT array_agg(a_home[i] ORDER BY n) FROM unnest(v_lost) WITH ORDINALITY AS l (i, n)),
                (SELECT array_agg(a_key_hash[i] ORDER BY n) FROM unnest(v_lost) WITH ORDINALITY AS l (i, n)),
                a_along) AS o ON o.n = lost.i;
    END IF;
    -- Somebody listens as long as this lock cannot be had.
    heard := NOT pg_try_advisory_lock(1936026989, 0);
    IF NOT heard THEN
        PERFORM pg_advisory_unlock(1936026989, 0);
    END IF;
    n := NULL;
    clock := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    RETURN NEXT;
END
$$;
