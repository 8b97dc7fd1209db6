//! What a client of the gateway is told when the store fails: no host, path or statement.

use semel_testkit::postgres::{Cluster, Setup as Database};
use serde_json::json;

use crate::desk::{Desk, Era};
use crate::matrix::order;
use crate::setup::{Carrier, Setup, Way};

#[test]
fn failing_database_is_told_without_its_host() {
    let cluster = Cluster::start_with(&Database {
        tcp: true,
        doors: "host all all 127.0.0.1/32 trust".to_owned(),
        ..Database::default()
    });
    let port = format!(":{}", cluster.port());
    let url = format!("postgres://semel@localhost{port}/postgres");
    for carrier in [Carrier::Stdio, Carrier::Http] {
        for era in [Era::Legacy, Era::Modern] {
            let desk = Desk::with(&[("SEMEL_STORE", &url)]);
            let setup = Setup::on(desk, Way::Gateway(carrier), Carrier::Stdio, era);
            let mut client = setup.client();
            let before = client.call("charge", &order());
            assert_ne!(before.result()["isError"], json!(true), "{before:?}");
            cluster.crash();
            for (tool, arguments) in [
                ("charge", order()),
                ("semel_list", json!({})),
                ("semel_resolve", json!({"key": "k", "verdict": "not_done"})),
            ] {
                let heard = format!("{:?}", client.call(tool, &arguments));
                let secrets = ["localhost", "127.0.0.1", &port, "postgres", "SELECT"];
                for secret in secrets {
                    assert!(
                        !heard.contains(secret),
                        "{setup}, {tool}: {secret} in {heard}"
                    );
                }
                assert!(
                    tool != "charge" || heard.contains("incident "),
                    "{setup}: {heard}"
                );
            }
            cluster.start_again();
            client.leave();
        }
    }
}
