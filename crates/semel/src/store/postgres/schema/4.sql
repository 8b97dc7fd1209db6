-- Breakers are records like operations, in states of their own. They are few and are listed together. An older version
-- does not know them, and starts no more.
CREATE INDEX operations_breakers ON semel.operations (place)
    WHERE state IN ('closed', 'open', 'half_open');
