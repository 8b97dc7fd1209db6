//! All metrics: their names never change their meaning.

/// One metric.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

macro_rules! metrics {
    ($($constant:ident: $kind:ident $name:literal, $help:literal;)*) => {
        $(
            pub(crate) const $constant: Metric = Metric {
                name: $name,
                kind: Kind::$kind,
                help: $help,
            };
        )*
        /// All of them, in the order in which they are written.
        #[cfg(test)]
        pub(crate) const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO: Gauge "semel_build_info", "Always 1; the label says which version runs.";
    BEGINS: Counter "semel_begins_total",
        "Begins by what they were answered: execute, probe, replay, or the code of a problem.";
    REPLAYS: Counter "semel_replays_total", "Answers that were given again, by call.";
    SAVED_CALLS: Counter "semel_saved_calls_total",
        "Answers that were given again or joined instead of acting once more, by door.";
    SAVED_SECONDS: Counter "semel_saved_seconds_total",
        "How long the attempts took whose answers were given again, by door.";
    SAVED_MONEY: Counter "semel_saved_money_total",
        "What those answers cost, where a price is set, by door and currency.";
    SETTLEMENTS: Counter "semel_settlements_total",
        "Reports that were taken, by the state that the operation is in afterwards.";
    TASKS_LEASED: Counter "semel_tasks_leased_total",
        "Tasks that were handed to workers over HTTP.";
    CONFLICTS: Counter "semel_conflicts_total",
        "Reports that contradict what is stored; what was stored first stands.";
    FENCED: Counter "semel_fenced_total",
        "Commands that were refused because something newer came first.";
    EVENTS: Counter "semel_events_total", "What this server wrote to the log, by event.";
    REFUSALS: Counter "semel_refusals_total",
        "Commands that the ledger refused, by code; a waiting begin asks more than once.";
    REQUESTS: Counter "semel_requests_total", "Requests by route and class of status.";
    TOKENS_REFUSED: Counter "semel_tokens_refused_total",
        "Calls with a token that is not valid.";
    REQUEST_SECONDS: Histogram "semel_request_seconds",
        "How long requests took until their answer began, by route.";
    STORE_SECONDS: Histogram "semel_store_seconds",
        "How long the store took for a call; begins that wait for others are not counted.";
    STORE_FAILURES: Counter "semel_store_failures_total",
        "Calls for which the store failed or did not answer in time.";
    STORE_GROUP_SIZE: Histogram "semel_store_group_size",
        "How many changes the store committed together.";
    STORE_UP: Gauge "semel_store_up",
        "Whether the store answered when it was last asked for the gauges below.";
    DOUBTS_OPEN: Gauge "semel_doubts_open",
        "Operations in doubt; at most 2000 are counted.";
    DOUBT_AGE: Gauge "semel_doubt_age_seconds",
        "How long the oldest of the counted doubts has been open; 0 without any.";
    DEAD: Gauge "semel_dead_operations",
        "Operations that are out of attempts; at most 2000 are counted.";
    QUEUE_DEPTH: Gauge "semel_queue_depth",
        "Operations that wait on a queue; at most 2000 waiting ones are looked at.";
    QUEUE_LAG: Gauge "semel_queue_lag_seconds",
        "For how long the first of those could have begun; 0 when none could.";
    BREAKERS: Gauge "semel_breakers",
        "Breakers by state; at most 2000 of each are counted.";
    PROXY_REQUESTS: Counter "semel_proxy_requests_total",
        "Requests through the proxy by route and by what became of them: executed, replayed, joined, passed, rehearsed, or the code of a refusal.";
    PROXY_SECONDS: Histogram "semel_proxy_request_seconds",
        "How long requests through the proxy took until their answer began, by route.";
    INBOX_REQUESTS: Counter "semel_inbox_requests_total",
        "Webhooks by source and by what became of them: created, noop, challenge, unsigned, wrong_signature, wrong_time, no_id, or the code of another refusal.";
    CONNECTIONS: Gauge "semel_connections_open", "Open connections.";
    STREAMS: Gauge "semel_streams_open", "Open event streams.";
    NOTIFY_DELIVERIES: Counter "semel_notify_deliveries_total",
        "Doubts and dead operations that were told, by channel.";
    NOTIFY_FAILURES: Counter "semel_notify_failures_total",
        "Tries to tell one that failed, by channel; they are tried again.";
    NOTIFY_WAITING: Gauge "semel_notify_waiting",
        "Notifications that are under way or wait to be tried again.";
    PUSH_DELIVERIES: Counter "semel_push_deliveries_total",
        "Tasks of push queues that were sent, by what became of them: succeeded, failed, not_done, unknown.";
    PUSH_UNDER_WAY: Gauge "semel_push_under_way", "Tasks of push queues that are being sent.";
    PUSH_PROBES: Counter "semel_push_probes_total",
        "Tries to find out whether the target of a push queue is back.";
    TRACE_SPANS: Counter "semel_trace_spans_total",
        "Spans that were sent to the collector or dropped, by outcome; 0 in builds without `otlp`.";
}
