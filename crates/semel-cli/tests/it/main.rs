//! The `semel` command, as its users meet it.

mod breakers;
mod confined;
mod copied_files;
mod copies;
mod copy;
mod docs;
mod docs_names;
mod doctor;
mod harness;
mod itself;
mod list;
mod log;
mod orders;
mod output;
mod owners;
mod postgres;
mod probe_text;
mod redaction;
mod remote;
mod resolve;
mod run;
mod samples;
mod settings;
mod show;
mod stats;
mod tokens;
