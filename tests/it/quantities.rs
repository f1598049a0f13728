//! Quantities, against what apimachinery itself makes of them.

use gpufence::policy::Quantity;
use serde_json::Value;

use crate::support::cases;

/// The text of a case, and how it is to be parsed: as the text of a quantity, or as JSON.
fn parse(case: &Value) -> (String, Option<Quantity>) {
    if let Some(json) = case["json"].as_str() {
        (json.to_owned(), Quantity::from_json(json).ok())
    } else {
        let text = case["string"].as_str().unwrap();
        (text.to_owned(), Quantity::parse(text).ok())
    }
}

#[test]
fn upstream_agrees_on_every_case() {
    let cases = cases("quantities.jsonl");
    assert!(cases.len() > 300);
    for case in cases {
        let (text, quantity) = parse(&case);
        let Some(valid) = case["valid"].as_bool() else {
            continue;
        };
        assert_eq!(quantity.is_some(), valid, "{text:?} is valid: {valid}");
        let Some(quantity) = quantity else { continue };
        assert_eq!(Some(quantity.is_zero()), case["is_zero"].as_bool(), "{text:?} is zero");
        if let Some(negative) = case["negative"].as_bool() {
            assert_eq!(quantity.is_negative(), negative, "{text:?} is negative");
        }
        // Where upstream itself overflows there is no value to compare.
        let overflows = case["kind"] == "json_value" && quantity.ceiling().is_none();
        if let (Some(value), false) = (case["value_as_integer_rounded_up"].as_i64(), overflows) {
            assert_eq!(quantity.ceiling(), Some(value), "{text:?} rounded up");
        }
    }
}

#[test]
fn absurd_exponents_cost_nothing() {
    for text in ["1e2147483647", "1e-2147483648", "1e-100000000", "12345678901234567890e1000000", "1e99999999999"] {
        let quantity = Quantity::parse(text).unwrap();
        assert!(quantity.is_positive(), "{text} is above zero");
    }
    let digits = "9".repeat(1_000_000);
    assert!(Quantity::parse(&digits).unwrap().is_positive());
    assert!(Quantity::parse(&format!("0.{}1Ei", "0".repeat(1_000_000))).unwrap().is_positive());
    assert!(Quantity::parse(&format!("1e{digits}")).is_err());
}

#[test]
fn binary_fractions_round_up_exactly() {
    for (text, value) in [
        ("0.00000000000000000000000000000000000001Ei", 1),
        ("0.5Ei", 1 << 59),
        ("0.500000000000000000000000000000000000001Ei", (1 << 59) + 1),
        ("1.000000000000000001Ei", (1 << 60) + 2),
        ("0.0009765625Ki", 1),
        ("0.00097656250001Ki", 2),
    ] {
        assert_eq!(Quantity::parse(text).unwrap().ceiling(), Some(value), "{text}");
    }
}
