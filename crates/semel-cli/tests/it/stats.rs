//! `semel stats`

use serde_json::json;

use crate::samples::world;

#[test]
fn people_get_counts_by_state_and_of_what_happened() {
    let counts = "\
operations in default  8
  pending              2
  running              1
  succeeded            1
  failed               1
  doubtful             2
  dead                 1
  tombstone            0
  bytes of answers     19
entries in the log     13
  attempts             7
  probes               0
  doubts               1
  doubts waived        0
  resolutions          0
  leases ended         0
  holders gone         0
  settled late         0
  conflicts            0
  retries              0
  cancelled            0
  forgotten            0
answers given again    0
  time saved           0 s
";
    world().semel(&["stats"]).expect(0, counts, "");
}

#[test]
fn programs_get_one_object() {
    let world = world();
    world.semel(&["resolve", "order-7", "--done"]);
    world.semel(&["forget", "order-7"]);
    let ran = world.semel(&["stats", "--json"]);
    assert_eq!(
        ran.json(),
        [json!({
            "namespace": "default",
            "operations": 7,
            "states": {
                "pending": 2, "running": 1, "succeeded": 1, "failed": 1, "doubtful": 1,
                "dead": 1, "tombstone": 0,
            },
            "answer_bytes": 19,
            "log": {
                "entries": 15, "attempts": 7, "probes": 0, "doubts": 2, "doubts_waived": 0,
                "resolutions": 1, "leases_ended": 1, "holders_gone": 0, "settled_late": 0,
                "conflicts": 0, "retries": 0, "cancelled": 0, "forgotten": 1,
                "first_at": "TIME", "last_at": "TIME",
            },
            "replayed": {"count": 0, "saved_ms": 0, "money": {}, "by": []},
        })]
    );
}
