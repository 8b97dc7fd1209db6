mod client;
mod fake;
mod greet;
mod lists;
mod names;
mod route;
