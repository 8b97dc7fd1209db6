-- Lets autovacuum come often and early to the tables of the schema `semel`, partitioned or not. Run it as their
-- owner; run it again after partition.sql.
--
--     psql -X -v ON_ERROR_STOP=1 -d DATABASE -f vacuum.sql

DO $$
DECLARE
    chosen record;
BEGIN
    FOR chosen IN
        SELECT oid::regclass AS name, substring(relname FROM '^[a-z]+') AS kind FROM pg_class
        WHERE relnamespace = 'semel'::regnamespace AND relkind = 'r'
            AND relname ~ '^(operations|log|payloads|chunks|kin)(_[0-9]+)?$'
    LOOP
        IF chosen.kind = 'log' THEN
            -- It is only added to: what is in it can be frozen at once, and never has to be looked at again.
            EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_insert_scale_factor = 0.02,
                autovacuum_freeze_min_age = 0, autovacuum_analyze_scale_factor = 0.02)', chosen.name);
        ELSE
            -- Every settlement replaces a row: one row in fifty, rather than one in five, is enough to come.
            EXECUTE format('ALTER TABLE %s SET (autovacuum_vacuum_scale_factor = 0.02,
                autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_insert_scale_factor = 0.02,
                autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 1,
                toast.autovacuum_vacuum_scale_factor = 0.02)', chosen.name);
        END IF;
    END LOOP;
END
$$;
