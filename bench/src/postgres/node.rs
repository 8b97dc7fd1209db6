//! Nodes of the ledger, each a process of its own: this program again, told what to do line by
//! line, as they would be on machines of their own.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::engines::Semel;
use crate::histogram::Histogram;
use crate::keys::Keys;
use crate::load::{self, Load, Measured};

/// The hidden command that makes this program a node.
pub(crate) const COMMAND: &str = "node";

/// What a node is told, as words on a line.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Makes cycles of fresh keys.
    Cycles { callers: u32, time: Time },
    /// Makes cycles until it has settled so many keys.
    Fill { callers: u32, until: u64 },
    /// Begins keys again that some node has settled.
    Replays {
        callers: u32,
        time: Time,
        written: Written,
    },
}

/// How long to warm up and to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Time {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// The keys that a node has written: they can be made again from this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    seed: u64,
    keys: u64,
}

impl Order {
    fn line(&self) -> String {
        let time =
            |time: &Time| format!("{} {}", time.warm_up.as_micros(), time.measured.as_micros());
        match self {
            Self::Cycles { callers, time: t } => format!("cycles {callers} {}", time(t)),
            Self::Fill { callers, until } => format!("fill {callers} {until}"),
            Self::Replays {
                callers,
                time: t,
                written,
            } => format!(
                "replays {callers} {} {} {}",
                time(t),
                written.seed,
                written.keys
            ),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (verb, rest) = line.split_once(' ')?;
        let numbers = rest.split(' ').map(|word| word.parse().ok());
        let numbers = numbers.collect::<Option<Vec<u64>>>()?;
        let (callers, numbers) = numbers.split_first()?;
        let callers = u32::try_from(*callers).ok()?;
        let time = |warm_up, measured| Time {
            warm_up: Duration::from_micros(warm_up),
            measured: Duration::from_micros(measured),
        };
        match (verb, numbers) {
            ("cycles", [warm_up, measured]) => Some(Self::Cycles {
                callers,
                time: time(*warm_up, *measured),
            }),
            ("fill", [until]) => Some(Self::Fill {
                callers,
                until: *until,
            }),
            ("replays", [warm_up, measured, seed, keys]) => Some(Self::Replays {
                callers,
                time: time(*warm_up, *measured),
                written: Written {
                    seed: *seed,
                    keys: *keys,
                },
            }),
            _ => None,
        }
    }
}

/// What a node answers: the keys it has written, and what it measured if it did.
#[derive(Debug)]
struct Answer {
    written: Written,
    measured: Measured,
}

impl Answer {
    fn line(&self) -> String {
        format!(
            "{} {} {} {}",
            self.written.seed,
            self.written.keys,
            self.measured.seconds,
            self.measured.latency.to_text()
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(4, ' ');
        let written = Written {
            seed: words.next()?.parse().ok()?,
            keys: words.next()?.parse().ok()?,
        };
        let measured = Measured {
            seconds: words.next()?.parse().ok()?,
            latency: Histogram::from_text(words.next()?)?,
        };
        Some(Self { written, measured })
    }
}

/// Is a node: obeys the lines of its input until that ends.
pub(crate) fn serve(url: &str) -> Result<()> {
    let runtime = load::runtime()?;
    let contender = Arc::new(runtime.block_on(Semel::at(url))?);
    let keys = Arc::new(Keys::new()?);
    let mut output = io::stdout();
    writeln!(output, "ready")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let order = Order::parse(&line).with_context(|| format!("a node cannot `{line}`"))?;
        let load = |callers, keys| Load {
            runtime: &runtime,
            contender: &contender,
            keys,
            callers,
        };
        let measured = match order {
            Order::Cycles { callers, time } => {
                load(callers, &keys).cycles(time.warm_up, time.measured)?
            }
            Order::Fill { callers, until } => {
                load(callers, &keys).fill(until)?;
                Measured {
                    seconds: 0.0,
                    latency: Histogram::new(),
                }
            }
            Order::Replays {
                callers,
                time,
                written,
            } => {
                let keys = Arc::new(Keys::written(written.seed, written.keys));
                load(callers, &keys).replays(time.warm_up, time.measured)?
            }
        };
        let written = Written {
            seed: keys.seed(),
            keys: keys.taken(),
        };
        writeln!(output, "{}", Answer { written, measured }.line())?;
    }
    runtime.block_on(async { drop(contender) });
    Ok(())
}

/// A node as the one who measures sees it.
#[derive(Debug)]
struct Node {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    written: Written,
}

impl Node {
    fn start(url: &str) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut process = Command::new(program)
            .args([COMMAND, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a node")?;
        let input = process.stdin.take();
        let output = process.stdout.take().context("a node has no output")?;
        let mut node = Self {
            process,
            input,
            output: BufReader::new(output),
            written: Written::default(),
        };
        let said = node.hear()?;
        ensure!(said == "ready", "a node said `{said}`");
        Ok(node)
    }

    fn tell(&mut self, order: &Order) -> Result<()> {
        let input = self.input.as_mut().context("a node has no input")?;
        writeln!(input, "{}", order.line()).context("a node ended")
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        match line.strip_suffix('\n') {
            Some(said) => Ok(said.to_owned()),
            None => bail!("a node ended before it answered"),
        }
    }

    fn answer(&mut self) -> Result<Measured> {
        let said = self.hear()?;
        let answer = Answer::parse(&said).with_context(|| format!("a node said `{said}`"))?;
        self.written = answer.written;
        Ok(answer.measured)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends by itself when nobody speaks to it any more.
        let _ended = self.process.wait();
    }
}

/// One node or more on one database; the callers are shared among them.
#[derive(Debug)]
pub(crate) struct Nodes {
    nodes: Vec<Node>,
}

impl Nodes {
    pub(crate) fn start(url: &str, count: u32) -> Result<Self> {
        let nodes = (0..count).map(|_| Node::start(url));
        let nodes = nodes.collect::<Result<_>>()?;
        Ok(Self { nodes })
    }

    pub(crate) fn cycles(&mut self, callers: u32, time: Time) -> Result<Measured> {
        let shares = self.shares(callers);
        let order = |callers| Order::Cycles { callers, time };
        self.obey(&shares.into_iter().map(order).collect::<Vec<_>>())
    }

    /// Settles keys until there are so many in all.
    pub(crate) fn fill(&mut self, callers: u32, until: u64) -> Result<()> {
        let count = self.nodes.len() as u64;
        let shares = self.shares(callers);
        let order = |callers| Order::Fill {
            callers,
            until: until / count,
        };
        self.obey(&shares.into_iter().map(order).collect::<Vec<_>>())
            .map(drop)
    }

    /// Each node begins the keys that its neighbour has settled: with more than one, nobody is
    /// asked about what it wrote itself.
    pub(crate) fn replays(&mut self, callers: u32, time: Time) -> Result<Measured> {
        let mut neighbours: Vec<_> = self.nodes.iter().map(|node| node.written).collect();
        neighbours.rotate_left(1);
        let orders = self.shares(callers).into_iter().zip(neighbours);
        let order = |(callers, written)| Order::Replays {
            callers,
            time,
            written,
        };
        self.obey(&orders.map(order).collect::<Vec<_>>())
    }

    /// How many keys all have settled.
    pub(crate) fn written(&self) -> u64 {
        self.nodes.iter().map(|node| node.written.keys).sum()
    }

    fn shares(&self, callers: u32) -> Vec<u32> {
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let share = |at| callers / count + u32::from(at < callers % count);
        (0..count).map(share).collect()
    }

    /// Tells each node its order, all at once, and adds up what they measured.
    fn obey(&mut self, orders: &[Order]) -> Result<Measured> {
        for (node, order) in self.nodes.iter_mut().zip(orders) {
            node.tell(order)?;
        }
        let mut all = Measured {
            seconds: 0.0,
            latency: Histogram::new(),
        };
        for node in &mut self.nodes {
            let measured = node.answer()?;
            // They began together and measured for the same time, up to a few milliseconds.
            all.seconds = all.seconds.max(measured.seconds);
            all.latency.add(&measured.latency);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_understood_as_they_were_given() {
        let time = Time {
            warm_up: Duration::from_millis(1),
            measured: Duration::from_millis(250),
        };
        let written = Written {
            seed: u64::MAX,
            keys: 12,
        };
        for order in [
            Order::Cycles { callers: 64, time },
            Order::Fill {
                callers: 1,
                until: 10_000_000,
            },
            Order::Replays {
                callers: 7,
                time,
                written,
            },
        ] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        for wrong in ["", "cycles", "cycles 1 2", "fill 1 x", "dance 1 2"] {
            assert_eq!(Order::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn answers_are_understood_as_they_were_given() {
        let mut latency = Histogram::new();
        for micros in [1, 50, 50, 70_000] {
            latency.record(Duration::from_micros(micros));
        }
        let answer = Answer {
            written: Written { seed: 3, keys: 4 },
            measured: Measured {
                seconds: 0.25,
                latency,
            },
        };
        let heard = Answer::parse(&answer.line()).unwrap();
        assert_eq!(heard.written, answer.written);
        assert!((heard.measured.per_second() - 16.0).abs() < 1e-9);
        for share in [0.2, 0.5, 1.0] {
            let (told, heard) = (&answer.measured.latency, &heard.measured.latency);
            assert!((told.percentile_us(share) - heard.percentile_us(share)).abs() < 1e-9);
        }
        assert!(Answer::parse("1 2 0.5").is_none());
    }
}
