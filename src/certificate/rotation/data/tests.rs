use super::*;

use time::Duration;
use time::macros::datetime;

const NOW: OffsetDateTime = datetime!(2027-03-01 12:00 UTC);

fn authority() -> Authority {
    Authority::generate(NOW, Duration::days(365)).unwrap()
}

fn states() -> [State; 4] {
    let (signing, next) = (authority(), authority());
    let publish = |published_at| State::Publish { signing: signing.clone(), next: next.clone(), published_at };
    [
        State::Stable { signing: signing.clone() },
        publish(None),
        publish(Some(NOW)),
        State::Retire { signing: next.clone(), previous: signing.anchor().clone(), switched_at: NOW },
    ]
}

fn refusal(data: &Data) -> String {
    State::from_data(data).unwrap_err().to_string()
}

#[test]
fn each_state_is_read_as_it_was_written() {
    for (state, phase) in states().iter().zip(Phase::ALL) {
        assert_eq!(state.phase(), phase);
        let data = state.to_data();
        assert_eq!(State::from_data(&data).unwrap().as_ref(), Some(state));
        assert_eq!(State::signing_from_data(&data).unwrap().as_ref(), Some(state.signing()));
        assert_eq!(data["bundle.crt"], state.bundle_pem().into_bytes());
        assert!(data.values().all(|value| std::str::from_utf8(value).is_ok()), "text for people");
        assert!(data.keys().all(|key| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))));
    }
    assert!(!states()[3].to_data().contains_key("previous.key"), "the key of the old CA is gone");
}

#[test]
fn an_empty_secret_is_one_to_begin_with() {
    assert!(State::from_data(&Data::new()).unwrap().is_none());
    assert!(State::signing_from_data(&Data::new()).unwrap().is_none());
}

#[test]
fn a_foreign_secret_is_no_state() {
    let data = Data::from([("tls.crt".to_owned(), vec![1]), ("tls.key".to_owned(), vec![2])]);
    assert!(refusal(&data).contains("not written by gpufence: it has tls.crt, tls.key"), "{}", refusal(&data));
    assert!(matches!(State::signing_from_data(&data), Err(DataError::Foreign { .. })));
    let data = Data::from([("phase".to_owned(), b"waxing".to_vec())]);
    assert_eq!(
        refusal(&data),
        "the Secret's key phase: found \"waxing\"; expected stable, publish, soak or retire; restore it, or empty \
         its data to begin with a new CA"
    );
}

#[test]
fn a_secret_that_was_edited_names_the_key() {
    for state in states() {
        let sound = state.to_data();
        for key in sound.keys().filter(|key| *key != "phase") {
            let mut data = sound.clone();
            data.remove(key);
            assert!(refusal(&data).contains(&format!("has no key {key}, ")), "{}", refusal(&data));
            data.insert(key.clone(), b"rubbish".to_vec());
            assert!(refusal(&data).contains(key.as_str()), "{key}: {}", refusal(&data));
            data.insert(key.clone(), vec![0xff; 3]);
            assert!(refusal(&data).contains(key.as_str()), "{key}: {}", refusal(&data));
        }
        let mut data = sound.clone();
        data.insert("ca.crt".to_owned(), b"x".to_vec());
        assert!(refusal(&data).contains("has the key ca.crt, which does not belong"), "{}", refusal(&data));
        assert!(State::signing_from_data(&data).unwrap().is_some(), "a replica goes by the signing pair");
    }
}

#[test]
fn pairs_that_were_mixed_up_are_refused() {
    let mut data = states()[1].to_data();
    let other = data["next.key"].clone();
    let own = data.insert("signing.key".to_owned(), other).unwrap();
    assert!(refusal(&data).contains("signing.crt and signing.key: the CA's key does not belong"), "{}", refusal(&data));
    assert!(State::signing_from_data(&data).is_err());
    let body = String::from_utf8(own).unwrap().lines().nth(1).unwrap().to_owned();
    assert!(!refusal(&data).contains(&body), "no key in an error");
}

#[test]
fn a_bundle_that_says_something_else_is_refused() {
    let [stable, publish, ..] = states();
    let mut data = publish.to_data();
    let State::Stable { signing } = &stable else { panic!("stable") };
    data.insert("bundle.crt".to_owned(), signing.certificate_pem().into_bytes());
    let error = refusal(&data);
    assert!(error.contains("key bundle.crt: found gpufence CA"), "{error}");
    assert!(error.contains("expected exactly the other certificates"), "{error}");
}

proptest::proptest! {
    /// Whatever is in a Secret, reading it ends with an answer.
    #[test]
    fn reading_is_total(
        keys in proptest::collection::vec(0_usize..10, 0..6),
        values in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40), 6),
        phase in 0_usize..6,
    ) {
        let known = [PHASE, BUNDLE, SIGNING[0], SIGNING[1], NEXT[0], NEXT[1], PREVIOUS, PUBLISHED_AT, SWITCHED_AT, "x"];
        let mut data: Data = keys.iter().map(|key| known[*key].to_owned()).zip(values).collect();
        if let Some(phase) = Phase::ALL.get(phase) {
            data.insert(PHASE.to_owned(), phase.as_str().as_bytes().to_vec());
        }
        let state = State::from_data(&data);
        proptest::prop_assert_eq!(matches!(state, Ok(None)), data.is_empty());
        proptest::prop_assert!(!matches!(state, Ok(Some(_))), "no rubbish is a state");
    }
}
