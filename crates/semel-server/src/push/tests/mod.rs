mod judged;
mod outage;
mod target;
