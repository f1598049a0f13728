//! Runs one review again and again, to count instructions with callgrind: `make instructions`. The counts
//! repeat on a busy machine, where times do not.
//!
//! `instructions CASE REPEATS`, with CASE one of `ordinary-3KB`, `gpu-200KB` and so on. Of `few-3KB` and `many-3KB` the pod
//! is put onto a node and in a namespace that counts by its labels: one of one, or one of thousands.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

mod cluster;
mod payload;

use std::hint::black_box;

use gpufence::contract::Contract;
use gpufence::policy::{Facts, NoFacts};
use gpufence::review::{Webhook, answer};
use payload::{Pod, review};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [case, repeats] = arguments.as_slice() else {
        println!("instructions: give CASE and REPEATS, and run it under callgrind (make instructions)");
        return;
    };
    let (name, size) = case.split_once('-').expect("CASE is POD-SIZE");
    let pod = match name {
        "gpu" => Pod::Gpu,
        "few" | "many" => Pod::Placed,
        _ => Pod::Ordinary,
    };
    let kilobytes: usize = size.trim_end_matches("KB").parse().expect("SIZE is a number of KB");
    let body = review(pod, kilobytes * 1000);
    let environment = [("GPUFENCE__MODE".to_owned(), "enforce".to_owned())];
    let policy = match pod {
        Pod::Placed => cluster::policy(),
        _ => Contract::load(None, environment).expect("the built-in contract is valid").policy,
    };
    let facts: Box<dyn Facts> = match name {
        "few" => Box::new(cluster::Caches::filled(cluster::FEW)),
        "many" => Box::new(cluster::Caches::filled(cluster::MANY)),
        _ => Box::new(NoFacts),
    };
    let webhook = if pod == Pod::Gpu { Webhook::Mutate } else { Webhook::Validate };
    for _ in 0..repeats.parse().expect("REPEATS is a number") {
        black_box(answer(&policy, &*facts, webhook, black_box(body.as_bytes())));
    }
    println!("{}", body.len());
}
