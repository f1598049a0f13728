//! Kubernetes quantities: which strings are one, whether they are above zero, and what they come to.
//!
//! The grammar and its oddities are those of `ParseQuantity` in apimachinery's `resource` package
//! (`.` is zero, `1e9223372036854775807` is a tenth because the exponent is cut to 32 bits). The
//! parser is total and takes time linear in the text: an exponent is compared, never computed.

use std::fmt;

/// A parsed quantity: its sign and its value, rounded away from zero to a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantity {
    sign: Sign,
    ceiling: Option<i64>,
}

/// How many places a decimal exponent moves for thousandths.
const MILLI: i32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Negative,
    Zero,
    Positive,
}

/// The text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAQuantity;

impl fmt::Display for NotAQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a quantity: expected a number with an optional suffix, such as 1, 500m or 2Gi")
    }
}

impl std::error::Error for NotAQuantity {}

impl Quantity {
    const ZERO: Self = Self { sign: Sign::Zero, ceiling: Some(0) };

    /// Parses the text of a quantity, without surrounding space.
    ///
    /// # Errors
    /// [`NotAQuantity`] where apimachinery's parser refuses the text as well.
    pub fn parse(text: &str) -> Result<Self, NotAQuantity> {
        let number = Number::scan(text)?;
        let scale = Scale::of(number.suffix).ok_or(NotAQuantity)?;
        if number.is_zero() {
            return Ok(Self::ZERO);
        }
        let magnitude = match scale {
            Scale::Decimal(exponent) => number.ceiling_decimal(exponent),
            Scale::Binary(exponent) => Some(number.ceiling_binary(exponent)),
        };
        let (sign, ceiling) = if number.negative {
            (Sign::Negative, magnitude.and_then(|magnitude| i64::try_from(-magnitude).ok()))
        } else {
            (Sign::Positive, magnitude.and_then(|magnitude| i64::try_from(magnitude).ok()))
        };
        Ok(Self { sign, ceiling })
    }

    /// The value in thousandths, rounded away from zero, as the scheduler counts CPU; an `i64` that cannot hold it is at
    /// its limit. Below zero counts as zero: nothing can be requested that is not there.
    ///
    /// # Errors
    /// As [`Quantity::parse`].
    pub fn milli(text: &str) -> Result<i64, NotAQuantity> {
        let number = Number::scan(text)?;
        let scale = Scale::of(number.suffix).ok_or(NotAQuantity)?;
        if number.is_zero() || number.negative {
            return Ok(0);
        }
        let magnitude = match scale {
            Scale::Decimal(exponent) => number.ceiling_decimal(exponent.saturating_add(MILLI)),
            Scale::Binary(exponent) => Some(number.ceiling_binary(exponent) * 1_000),
        };
        Ok(magnitude.and_then(|magnitude| i64::try_from(magnitude).ok()).unwrap_or(i64::MAX))
    }

    /// Parses the JSON text of a quantity: a string, a number or null, which is zero.
    ///
    /// Like apimachinery's decoder it looks between the quotes and does not resolve escapes.
    ///
    /// # Errors
    /// [`NotAQuantity`] for any other JSON value or text.
    pub fn from_json(raw: &str) -> Result<Self, NotAQuantity> {
        if raw == "null" {
            return Ok(Self::ZERO);
        }
        Self::parse(text_of(raw))
    }

    /// As [`Quantity::milli`], of the JSON text of a quantity.
    ///
    /// # Errors
    /// As [`Quantity::from_json`].
    pub fn milli_from_json(raw: &str) -> Result<i64, NotAQuantity> {
        if raw == "null" { Ok(0) } else { Self::milli(text_of(raw)) }
    }

    /// Whether the quantity is zero, however it is spelled.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.sign == Sign::Zero
    }

    /// Whether the quantity is above zero, however little.
    #[must_use]
    pub fn is_positive(self) -> bool {
        self.sign == Sign::Positive
    }

    /// Whether the quantity is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.sign == Sign::Negative
    }

    /// The value rounded away from zero to a whole number; `None` where an `i64` cannot hold it.
    /// A quantity with a binary suffix is capped at `i64::MAX`, as upstream does.
    #[must_use]
    pub fn ceiling(self) -> Option<i64> {
        self.ceiling
    }
}

/// What stands between the quotes, if there are any.
fn text_of(raw: &str) -> &str {
    raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(raw).trim()
}

/// The parts of a quantity's text.
struct Number<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    /// Digits behind the point.
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Number<'a> {
    fn scan(text: &'a str) -> Result<Self, NotAQuantity> {
        if text.is_empty() {
            return Err(NotAQuantity);
        }
        let (negative, rest) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(rest.trim_start_matches('0'));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        Ok(Self { negative, whole, fraction, suffix })
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.bytes().all(|digit| digit == b'0')
    }

    /// ⌈whole.fraction × 10^exponent⌉ of a number that is not zero; `None` past 20 digits, which is
    /// beyond any `i64`.
    fn ceiling_decimal(&self, exponent: i32) -> Option<i128> {
        let fraction_zeros = if self.whole.is_empty() { leading_zeros(self.fraction) } else { 0 };
        let fraction = &self.fraction[fraction_zeros..];
        // Where the point stands in the significant digits, counted from their start.
        let point = length(self.whole) - length(&self.fraction[..fraction_zeros]) + i64::from(exponent);
        if point <= 0 {
            return Some(1);
        }
        let point = usize::try_from(point).ok().filter(|point| *point <= 20)?;
        let mut digits = self.whole.bytes().chain(fraction.bytes());
        let integer = (0..point).fold(0, |sum, _| sum * 10 + digits.next().map_or(0, value));
        Some(integer + i128::from(digits.any(|digit| digit != b'0')))
    }

    /// ⌈whole.fraction × 2^exponent⌉, capped at `i64::MAX`.
    fn ceiling_binary(&self, exponent: u32) -> i128 {
        /// 10^18, the largest power of ten that leaves room for 2^60 in 128 bits.
        const CHUNK: i128 = 1_000_000_000_000_000_000;
        let cap = i128::from(i64::MAX);
        if self.whole.len() > 19 {
            return cap;
        }
        let whole = self.whole.bytes().fold(0, |sum, digit| sum * 10 + value(digit));
        // The fraction in two chunks of 18 digits. What is behind them is below 2^60 × 10^-36, too
        // little to carry: only whether there is anything counts.
        let mut digits = self.fraction.bytes();
        let mut chunk = || (0..18).fold(0, |sum, _| sum * 10 + digits.next().map_or(0, value));
        let (high, low) = (chunk() << exponent, chunk() << exponent);
        let sum = high % CHUNK + low / CHUNK;
        let inexact = sum % CHUNK != 0 || low % CHUNK != 0 || digits.any(|digit| digit != b'0');
        ((whole << exponent) + high / CHUNK + sum / CHUNK + i128::from(inexact)).min(cap)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn leading_zeros(digits: &str) -> usize {
    digits.bytes().take_while(|digit| *digit == b'0').count()
}

fn length(digits: &str) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}

fn value(digit: u8) -> i128 {
    i128::from(digit - b'0')
}

enum Scale {
    /// A power of ten.
    Decimal(i32),
    /// A power of two.
    Binary(u32),
}

impl Scale {
    fn of(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                // Upstream parses 64 bits and keeps the lower 32.
                #[expect(clippy::cast_possible_truncation, reason = "upstream's own truncation")]
                Self::Decimal(exponent.parse::<i64>().ok()? as i32)
            }
        })
    }
}
