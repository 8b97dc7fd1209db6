//! A node that is stopped beyond its lease: when it goes on, it can neither renew nor release, nor
//! settle over a newer attempt. Where there is none, its late report settles the doubt.
//!
//! Each story is told twice: by a node that follows the rules, and by one with a planted bug, which
//! must be noticed.

use std::time::Duration;

use rustix::process::Signal;
use semel::core::ledger::{Fence, StateKind};
use semel::{Admission, Effect, Engine, Lease, Permit, Request};
use semel_testkit::postgres::Cluster;
use semel_testkit::process::audit::{Seen, audit};
use semel_testkit::process::{
    Agent, CrashPoint, Keys, NAME, Orders, Scene, Word, key, on_doubt, wall,
};
use semel_testkit::sim::Bug;

use crate::agent;

/// How long the other node waits for the end of a lease: far longer than it lasts.
const PATIENCE: Duration = Duration::from_secs(60);

/// A doubt about this key is retried by whoever comes next.
const RETRIED: &str = "retry-1";

/// A doubt about this key waits for somebody.
const HELD: &str = "hold-1";

type Told = Result<(), String>;

/// A node that is stopped with a lease, and another one.
struct Story {
    scene: Scene,
    key: &'static str,
    stopped: Option<Agent>,
    other: Engine,
}

impl Story {
    /// Lets a node begin, and stops it at this moment.
    async fn begin(key: &'static str, at: CrashPoint, bug: Option<Bug>) -> Self {
        let scene = Scene::on_server(Cluster::shared().database());
        let orders = Orders {
            lease: Lease::MIN,
            stop: Some((at, 1)),
            bug,
            ..Orders::new(&scene, Keys::These(vec![key.to_owned()]))
        };
        let state = format!("XDG_STATE_HOME={}", scene.path().display());
        let mut stopped = agent().through(&["env", &state]).start(&orders);
        stopped.wait_until_stopped();
        let other = scene.open().await;
        Self {
            scene,
            key,
            stopped: Some(stopped),
            other,
        }
    }

    /// Asks the other node, which waits while the stopped one's lease lasts.
    async fn ask(&self) -> Admission {
        let request = Request::new(NAME, key(self.key)).input(self.key);
        let request = request.on_doubt(on_doubt(self.key)).wait(PATIENCE);
        let admission = self.other.begin(request).await;
        admission.expect("the other node is answered")
    }

    /// Begins a newer attempt on the other node.
    async fn newer(&self) -> Permit {
        match self.ask().await {
            Admission::Execute(permit) => permit,
            other => panic!("the lease of a stopped node ends: {other:?}"),
        }
    }

    /// Acts and settles as the newer attempt; returns its answer.
    async fn settle(&self, permit: Permit) -> Result<String, String> {
        let line = self.scene.sink().cause(self.key, permit.fence(), || {});
        let settled = permit.done(Effect::Created, &line.answer()).await;
        let receipt = settled.map_err(|error| format!("the newer attempt: {error}"))?;
        same(&receipt.ok, &true, "the newer attempt")?;
        Ok(line.answer())
    }

    /// Continues the stopped node; returns what it was told until its end.
    fn go_on(&mut self) -> Vec<Word> {
        let stopped = self.stopped.take().expect("it goes on once");
        stopped.signal(Signal::CONT);
        let ended = stopped.wait();
        assert!(ended.status.success(), "{}: {}", ended.status, ended.said);
        let words = self.scene.told().words();
        words.into_iter().map(|(_, word)| word).collect()
    }

    /// The newer attempt still has its fence and runs.
    async fn still_runs(&self, fence: Fence) -> Told {
        let record = self.other.load(&wall(), &key(self.key)).await;
        let record = record.expect("it loads").expect("it is there");
        same(&record.kind(), &StateKind::Running, "the newer attempt")?;
        let operation = record.operation().expect("it is an operation");
        same(&operation.fence, &fence, "the newer attempt's fence")
    }

    /// Everybody who asks is given this answer, and world, ledger and callers agree.
    async fn ends_with(&self, answer: &str) -> Told {
        let Admission::Replay(receipt) = self.ask().await else {
            return Err("it is not settled".to_owned());
        };
        let expected = format!("\"{answer}\"");
        same(&receipt.data(), &Some(expected.as_str()), "the outcome")?;
        let audited = audit(&self.other, &self.scene, &mut Seen::default()).await;
        audited.map(drop)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(is: &T, expected: &T, what: &str) -> Told {
    if is == expected {
        return Ok(());
    }
    Err(format!("{what}: {is:?} is not {expected:?}"))
}

/// What was told begins with these words.
fn told(words: &[Word], expected: &[&str]) -> Told {
    let words: Vec<_> = words.iter().map(ToString::to_string).collect();
    let pairs = words.iter().zip(expected);
    let fits = pairs.filter(|(word, start)| word.starts_with(*start));
    if words.len() == expected.len() && fits.count() == words.len() {
        return Ok(());
    }
    Err(format!("told {words:?}, not {expected:?}"))
}

/// What is wrong was noticed, and said with these words.
fn caught(told: Told, words: &str) {
    let text = told.expect_err("a broken rule is noticed");
    assert!(text.contains(words), "{text}");
}

/// It has acted; the newer attempt runs while it reports.
async fn settling_over_a_running_attempt(bug: Option<Bug>) -> Told {
    let mut story = Story::begin(RETRIED, CrashPoint::AfterEffect, bug).await;
    let permit = story.newer().await;
    let words = story.go_on();
    story.still_runs(permit.fence()).await?;
    told(&words, &["renewal fenced", "error fenced"])?;
    let answer = story.settle(permit).await?;
    story.ends_with(&answer).await
}

/// It has acted; the newer attempt was settled before it reports.
async fn settling_over_a_settled_attempt(bug: Option<Bug>) -> Told {
    let mut story = Story::begin(RETRIED, CrashPoint::AfterEffect, bug).await;
    let permit = story.newer().await;
    let answer = story.settle(permit).await?;
    let words = story.go_on();
    let replayed = format!("replayed {answer}");
    told(&words, &["renewal fenced", &replayed])?;
    story.ends_with(&answer).await
}

/// It has not acted, and gives back what is not its own any more.
async fn releasing_a_newer_attempt(bug: Option<Bug>) -> Told {
    let mut story = Story::begin(RETRIED, CrashPoint::AfterClaim, bug).await;
    let permit = story.newer().await;
    let words = story.go_on();
    story.still_runs(permit.fence()).await?;
    told(&words, &["renewal fenced", "error fenced"])?;
    let answer = story.settle(permit).await?;
    story.ends_with(&answer).await
}

/// It has acted, and nobody else has begun.
async fn settling_a_doubt(bug: Option<Bug>) -> Told {
    let mut story = Story::begin(HELD, CrashPoint::AfterEffect, bug).await;
    let doubt = story.ask().await;
    assert!(matches!(doubt, Admission::InDoubt(_)), "{doubt:?}");
    let words = story.go_on();
    let line = story.scene.sink().last_of(HELD).expect("it has acted");
    let done = format!("done {}", line.answer());
    told(&words, &["renewal fenced", &done])?;
    story.ends_with(&line.answer()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_stopped_cannot_settle_over_a_newer_attempt() {
    let story = settling_over_a_running_attempt(None).await;
    story.expect("its report is fenced, and the newer outcome stands");
    let story = settling_over_a_settled_attempt(None).await;
    story.expect("it is given the newer outcome, which stands");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_stopped_cannot_release_a_newer_attempt() {
    let story = releasing_a_newer_attempt(None).await;
    story.expect("its report is fenced, and the newer attempt runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_late_report_of_a_node_that_was_stopped_settles_the_doubt() {
    let story = settling_a_doubt(None).await;
    story.expect("its report settles the doubt");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_that_breaks_a_rule_is_caught() {
    let unchecked = Some(Bug::FenceUnchecked);
    let wrong = settling_over_a_running_attempt(unchecked).await;
    caught(wrong, "the newer attempt: Succeeded is not Running");
    let wrong = releasing_a_newer_attempt(unchecked).await;
    caught(wrong, "the newer attempt: Succeeded is not Running");
    let wrong = settling_over_a_settled_attempt(Some(Bug::ConflictOverwrites)).await;
    caught(wrong, "with fence 1\"], not");
    let wrong = settling_a_doubt(Some(Bug::LateDoneRefused)).await;
    caught(wrong, "told [\"renewal fenced\", \"error fenced");
    let wrong = settling_a_doubt(Some(Bug::LapsedLeaseRenewed)).await;
    caught(wrong, "told [\"renewal renewed\"");
}
