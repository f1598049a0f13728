//! What one review costs, from the request's bytes to the answer's, and how it splits.
//!
//! `answer` is all of it, in one pass over the body. The parts are measured by themselves: `envelope` reads
//! the AdmissionReview with its objects raw and encodes an answer, `read` makes the narrow view of the
//! pod, and `decide` judges it.

#![expect(clippy::expect_used, reason = "a benchmark may fail as a test does")]

mod cluster;
mod payload;

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gpufence::contract::Contract;
use gpufence::policy::{Kind, NoFacts, Operation, Phase, Requester, Subject};
use gpufence::review::{Webhook, answer};
use payload::{Pod, review};
use serde_json::Value;

const SIZES: [(&str, usize); 3] = [("3KB", 3_000), ("20KB", 20_000), ("200KB", 200_000)];

fn bench(criterion: &mut Criterion) {
    let environment = [("GPUFENCE__MODE".to_owned(), "enforce".to_owned())];
    let policy = Contract::load(None, environment).expect("the built-in contract is valid").policy;
    for (webhook, pod, name) in [
        (Webhook::Validate, Pod::Ordinary, "ordinary pod, validate"),
        (Webhook::Mutate, Pod::Ordinary, "ordinary pod, mutate"),
        (Webhook::Mutate, Pod::Gpu, "GPU pod, mutate"),
    ] {
        let mut group = criterion.benchmark_group(name);
        for (label, size) in SIZES {
            let body = review(pod, size);
            group.throughput(Throughput::Bytes(body.len() as u64));
            group.bench_with_input(BenchmarkId::new("answer", label), &body, |bencher, body| {
                bencher.iter(|| answer(&policy, &NoFacts, webhook, black_box(body.as_bytes())));
            });
        }
        group.finish();
    }

    let mut group = criterion.benchmark_group("split, ordinary pod");
    for (label, size) in SIZES {
        let body = review(Pod::Ordinary, size);
        // A DELETE is answered from the envelope alone.
        let envelope = body.replace("\"operation\":\"CREATE\"", "\"operation\":\"DELETE\"");
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("envelope", label), &envelope, |bencher, body| {
            bencher.iter(|| answer(&policy, &NoFacts, Webhook::Validate, black_box(body.as_bytes())));
        });
        let review: Value = serde_json::from_str(&body).expect("the payload is JSON");
        let object = review["request"]["object"].to_string();
        group.bench_with_input(BenchmarkId::new("read", label), &object, |bencher, object| {
            bencher.iter(|| Kind::Pod.read(black_box(object)));
        });
        let object = Kind::Pod.read(&object).expect("the payload is a Pod");
        group.bench_with_input(BenchmarkId::new("decide", label), &object, |bencher, object| {
            bencher.iter(|| {
                let subject = Subject {
                    phase: Phase::Validating,
                    operation: Operation::Create,
                    namespace: "ml-team",
                    requester: Requester::default(),
                    object,
                };
                policy.decide(black_box(&subject), &NoFacts)
            });
        });
    }
    group.finish();
}

/// One review that asks for a node and for the labels of its namespace, of a small cluster and of a large one.
fn caches(criterion: &mut Criterion) {
    let policy = cluster::policy();
    let mut group = criterion.benchmark_group("pod put onto a node, validate");
    for (label, size) in [("1 node", cluster::FEW), ("10,000 nodes", cluster::MANY)] {
        let facts = cluster::Caches::filled(size);
        let body = review(Pod::Placed, 3_000);
        group.bench_with_input(BenchmarkId::new("answer", label), &body, |bencher, body| {
            bencher.iter(|| answer(&policy, &facts, Webhook::Validate, black_box(body.as_bytes())));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50);
    targets = bench, caches
}
criterion_main!(benches);
