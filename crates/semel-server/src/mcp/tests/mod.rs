//! What the parts of the gateway that touch nothing promise.

mod answer;
mod ask;
mod catalogue;
mod edit;
mod lines;
mod message;
mod policy;
mod seal;
mod sse;
mod verdict;
mod verify;
mod wild;
