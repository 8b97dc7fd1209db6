//! B. What a repeated request gets, and what an answer means.

mod refusals;
mod repeats;
mod verdicts;
