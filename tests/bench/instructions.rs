//! Runs one review again and again, to count instructions with callgrind: `make instructions`. The counts
//! repeat on a busy machine, where times do not.
//!
//! `instructions CASE REPEATS`, with CASE one of `ordinary-3KB`, `gpu-200KB` and so on.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

mod payload;

use std::hint::black_box;

use gpufence::contract::Contract;
use gpufence::policy::NoFacts;
use gpufence::review::{Webhook, answer};
use payload::{Pod, review};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [case, repeats] = arguments.as_slice() else {
        println!("instructions: give CASE and REPEATS, and run it under callgrind (make instructions)");
        return;
    };
    let (pod, size) = case.split_once('-').expect("CASE is POD-SIZE");
    let pod = if pod == "gpu" { Pod::Gpu } else { Pod::Ordinary };
    let kilobytes: usize = size.trim_end_matches("KB").parse().expect("SIZE is a number of KB");
    let body = review(pod, kilobytes * 1000);
    let environment = [("GPUFENCE__MODE".to_owned(), "enforce".to_owned())];
    let policy = Contract::load(None, environment).expect("the built-in contract is valid").policy;
    let webhook = if pod == Pod::Gpu { Webhook::Mutate } else { Webhook::Validate };
    for _ in 0..repeats.parse().expect("REPEATS is a number") {
        black_box(answer(&policy, &NoFacts, webhook, black_box(body.as_bytes())));
    }
    println!("{}", body.len());
}
