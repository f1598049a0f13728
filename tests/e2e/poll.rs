use std::thread::sleep;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(25);

/// Tries until there is an outcome, and fails with the last obstacle where there is none in time.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(outcome) => return outcome,
            Err(obstacle) if start.elapsed() > limit => {
                panic!("{what}: not after {} s: {obstacle}", limit.as_secs());
            }
            Err(_) => sleep(PAUSE),
        }
    }
}
