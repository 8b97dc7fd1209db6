use crate::mcp::catalogue::{Catalogue, Served};
use crate::mcp::listed::Listed;
use crate::mcp::policy::UpstreamPolicy;

fn page(tools: &str) -> Vec<Listed> {
    Listed::read_all(&format!(r#"{{"tools":[{tools}]}}"#))
}

/// A server that refuses a call of a tool which it may have says nothing of what it did before.
#[test]
fn a_tool_is_missing_only_from_a_whole_list() {
    let served = Served::new("shop".to_owned(), UpstreamPolicy::default());
    let catalogue = Catalogue::new(vec![served], false);
    let refutes = |tool| catalogue.at(0).refutes(tool, Some("{}"));
    assert!(!refutes("charge"));
    catalogue.learn(0, page(r#"{"name":"balance","inputSchema":{}}"#), false);
    assert!(!refutes("charge"), "the next page may have it");
    catalogue.learn(0, page(r#"{"name":"refund","inputSchema":{}}"#), true);
    assert!(refutes("charge"));
    assert!(!refutes("balance"));
    // It is asked again, and has not said all of it yet.
    catalogue.learn(0, page(r#"{"name":"balance","inputSchema":{}}"#), false);
    assert!(!refutes("charge"));
}
