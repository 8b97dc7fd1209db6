//! A process that moves money for each key that it is given; tests start and kill it.
//!
//! `teller STORE die|live KEY...`

use std::io::Write as _;
use std::path::Path;

use semel_testkit::process::Teller;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [store, fate, keys @ ..] = words.as_slice() else {
        return Err("usage: teller STORE die|live KEY...".into());
    };
    let mut teller = Teller::open(Path::new(store)).await?;
    if fate == "die" {
        teller.die_before_commit();
    }
    let mut out = std::io::stdout();
    out.write_all(b"ready\n")?;
    out.flush()?;
    for key in keys {
        teller.transfer(key).await?;
    }
    Ok(())
}
