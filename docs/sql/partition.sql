-- Partitions the tables of the schema `semel` by bucket. Run it as their owner or as a superuser, after the
-- first start has made them (`semel list` is enough) and best before there is anything in them:
--
--     psql -X -v ON_ERROR_STOP=1 -d DATABASE -f partition.sql
--
-- What is there already is copied, in the same transaction, while everybody else is kept out: that takes as
-- long as the copying does, and room for a second copy. Who waits is told `store_unavailable`, and nothing
-- is lost. Grants on the tables have to be given again. Nothing else changes: Semel does not know.

DO $$
DECLARE
    -- How many partitions each table gets: 1 to 256.
    parts CONSTANT integer := 16;
    width CONSTANT integer := ceil(256.0 / parts);
    chosen text;
    owner name;
    options text;
BEGIN
    IF to_regclass('semel.meta') IS NULL THEN
        RAISE EXCEPTION 'there is no ledger in this database yet'
            USING HINT = 'Let Semel make its tables first: `semel --store postgres://... list`.';
    END IF;
    SELECT rolname INTO owner FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
        WHERE c.oid = 'semel.meta'::regclass;
    EXECUTE format('SET LOCAL ROLE %I', owner);
    -- In the order in which Semel uses them, so that nobody waits for somebody who waits for us.
    LOCK TABLE semel.operations, semel.log, semel.payloads, semel.chunks IN ACCESS EXCLUSIVE MODE;

    FOREACH chosen IN ARRAY ARRAY['operations', 'log', 'payloads', 'chunks'] LOOP
        -- A partition has storage parameters, a partitioned table has none.
        SELECT coalesce('WITH (' || array_to_string(reloptions, ', ') || ')', '') INTO options
            FROM pg_class WHERE oid = format('semel.%I', chosen)::regclass AND relkind = 'r';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'semel.% is partitioned already', chosen;
        END IF;
        EXECUTE format('ALTER TABLE semel.%I RENAME TO %I', chosen, chosen || '_whole');
        EXECUTE format('CREATE TABLE semel.%I (LIKE semel.%I INCLUDING ALL) PARTITION BY RANGE (bucket)',
            chosen, chosen || '_whole');
        FOR n IN 0..(255 / width) LOOP
            EXECUTE format('CREATE TABLE semel.%I PARTITION OF semel.%I FOR VALUES FROM (%s) TO (%s) %s',
                chosen || '_' || lpad(n::text, 3, '0'), chosen, n * width, least((n + 1) * width, 256), options);
        END LOOP;
        EXECUTE format('INSERT INTO semel.%I SELECT * FROM semel.%I', chosen, chosen || '_whole');
        EXECUTE format('DROP TABLE semel.%I', chosen || '_whole');
    END LOOP;
END
$$;
