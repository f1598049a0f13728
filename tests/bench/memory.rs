//! What is kept of a large cluster must stay small, also while all of it is read again.
//!
//! A test without a harness: the counting allocator belongs to the whole process.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

mod cluster;

use std::time::Duration;

use cluster::{Caches, MANY};
use gpufence::policy::NodeFact;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// What both caches may take together.
const MOST: usize = 128 * 1024 * 1024;

fn main() {
    let _profiler = dhat::Profiler::builder().testing().trim_backtraces(Some(1)).build();
    let before = dhat::HeapStats::get().curr_bytes;
    let caches = Caches::default();
    let lists = caches.follow(MANY, Duration::from_secs(2));
    assert!(lists >= 2, "all nodes were read {lists} times");
    for index in [0, MANY.nodes - 1] {
        let node = caches.nodes.get(&format!("gpu-node-{index:05}"));
        assert!(matches!(&node, NodeFact::Known(node) if node.label("accelerator") == Some("nvidia")), "{node:?}");
    }
    let stats = dhat::HeapStats::get();
    let (kept, peak) = (stats.curr_bytes - before, stats.max_bytes - before);
    println!(
        "{} nodes and {} namespaces: {} KiB kept, {} KiB at most while they were read {lists} times and changed",
        MANY.nodes,
        MANY.namespaces,
        kept / 1024,
        peak / 1024
    );
    assert!(kept > 1024 * 1024, "nothing was kept");
    assert!(peak < MOST, "the caches take {peak} bytes, and {MOST} are the most");
    println!("test result: ok. 1 passed; 0 failed");
}
