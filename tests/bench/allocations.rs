//! What one review allocates must not grow with the parts of a pod that the policy does not read.
//!
//! A test without a harness: the counting allocator belongs to the whole process.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

mod payload;

use gpufence::contract::Contract;
use gpufence::policy::NoFacts;
use gpufence::review::{Webhook, answer};
use payload::{Pod, review};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Blocks and bytes that one review of a pod of this size allocates.
fn allocated(pod: Pod, webhook: Webhook, size: usize) -> (u64, u64) {
    let environment = [("GPUFENCE__MODE".to_owned(), "enforce".to_owned())];
    let policy = Contract::load(None, environment).expect("the built-in contract is valid").policy;
    let body = review(pod, size);
    let before = dhat::HeapStats::get();
    let answer = answer(&policy, &NoFacts, webhook, body.as_bytes());
    let after = dhat::HeapStats::get();
    assert_eq!(answer.status, 200);
    (after.total_blocks - before.total_blocks, after.total_bytes - before.total_bytes)
}

fn main() {
    let _profiler = dhat::Profiler::builder().testing().build();
    for (name, pod, webhook) in [
        ("ordinary pod, validate", Pod::Ordinary, Webhook::Validate),
        ("ordinary pod, mutate", Pod::Ordinary, Webhook::Mutate),
        ("GPU pod, mutate", Pod::Gpu, Webhook::Mutate),
    ] {
        let small = allocated(pod, webhook, 10_000);
        let large = allocated(pod, webhook, 1_000_000);
        println!(
            "{name}: {} blocks, {} bytes for 10 KB; {} blocks, {} bytes for 1 MB",
            small.0, small.1, large.0, large.1
        );
        assert_eq!(small, large, "{name}: allocations grow with what the policy does not read");
    }
    println!("test result: ok. 3 passed; 0 failed");
}
