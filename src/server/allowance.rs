//! How long a request's body may take, from the `timeout` in its query.
//!
//! kube-apiserver says there how long it still waits, in Go's duration syntax (`10s`). An answer
//! after that is work for nobody.

use std::time::Duration;

/// The longest that a body may take. kube-apiserver has the whole of it at hand when it calls.
const LONGEST: Duration = Duration::from_secs(5);

/// What is kept back of the caller's own time for the way of the answer.
const MARGIN: Duration = Duration::from_millis(100);

/// How long the body may take; zero where the caller's time has run out. A `timeout` that is
/// absent or malformed sets no bound of its own.
pub(super) fn of(query: Option<&str>) -> Duration {
    query
        .unwrap_or_default()
        .split('&')
        .find_map(|pair| pair.strip_prefix("timeout="))
        .and_then(go_duration)
        .map_or(LONGEST, |timeout| timeout.saturating_sub(MARGIN).min(LONGEST))
}

/// A duration as Go writes one: numbers with a unit each, `1h30m`, `1.5s`. Negative ones are not
/// taken: they say nothing that a caller would mean.
fn go_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(unit_at);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let seconds: f64 = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = next;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(query: &str) -> u128 {
        of(Some(query)).as_millis()
    }

    #[test]
    fn the_callers_time_less_the_margin_bounds_the_body() {
        assert_eq!(millis("timeout=2s"), 1_900);
        assert_eq!(millis("timeout=1.5s"), 1_400);
        assert_eq!(millis("timeout=1s500ms"), 1_400);
        assert_eq!(millis("dryRun=All&timeout=3s"), 2_900);
        assert_eq!(millis("timeout=10s"), 5_000, "never longer than our own bound");
        assert_eq!(millis("timeout=1h2m"), 5_000);
    }

    #[test]
    fn no_time_is_left_at_the_margin() {
        for query in ["timeout=0", "timeout=0s", "timeout=99ms", "timeout=100ms", "timeout=5us"] {
            assert_eq!(millis(query), 0, "{query}");
        }
    }

    #[test]
    fn a_malformed_timeout_bounds_nothing() {
        let malformed = [
            "",
            "timeout",
            "timeout=",
            "timeout=ten",
            "timeout=10",
            "timeout=s",
            "timeout=-1s",
            "timeout=.s",
            "timeout=1..5s",
            "timeout=1s2",
            "timeout=1x",
            "timeout=1 s",
            "mytimeout=1s",
            "Timeout=1s",
            "timeout=999999999999999999999h",
            "timeout=%C2%B5s",
            "timeout=é",
        ];
        for query in malformed {
            assert_eq!(millis(query), 5_000, "{query}");
        }
        assert_eq!(of(None), LONGEST);
    }
}
