-- Who may ask a server. `digest` is the SHA-256 of the secret, which is stored nowhere. They are few, and belong
-- to no operation: so this table has no buckets.
CREATE TABLE semel.tokens (
    id text COLLATE "C" PRIMARY KEY,
    digest bytea NOT NULL,
    namespace text NOT NULL,
    -- read, write, operate, admin
    scope text NOT NULL,
    label text,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);
