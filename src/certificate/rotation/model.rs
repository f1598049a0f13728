//! Every order in which things can happen to a rotation, looked at one by one.
//!
//! Two who drive it, single steps of them interleaved in every way, crashes after each, replicas that
//! read the Secret late and serve later still or begin anew, API servers that hold an old bundle for as
//! long as they may: in every world that can come of it, every leaf served is trusted by every API server.

mod world;

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use world::{Action, LIFE, Settings, World};

/// A hash, which stands for a world among those seen: a hundred and twenty-eight bits do not collide. The
/// standard library's has half of them, and takes several times as long in a debug build.
struct Words(u128);

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed =
                (self.0 ^ u128::from(u64::from_ne_bytes(word))).wrapping_mul(0x0000_0000_0100_0000_9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ (mixed >> 71);
        }
    }

    fn finish(&self) -> u64 {
        unreachable!("the whole of it is wanted")
    }
}

fn digest(thing: &impl Hash) -> u128 {
    let mut hasher = Words(1);
    thing.hash(&mut hasher);
    hasher.0
}

/// Looks at every world that can come of this one before the horizon: how many there are, or how the
/// first fault came about.
fn explore(start: World, settings: &Settings, horizon: i32) -> Result<usize, String> {
    let first = digest(&start);
    let mut seen = HashMap::from([(first, None)]);
    let mut next = VecDeque::from([(first, start)]);
    while let Some((from, world)) = next.pop_front() {
        for action in world.actions(settings, horizon) {
            let after = world.after(action, settings);
            let to = digest(&after);
            if seen.contains_key(&to) {
                continue;
            }
            seen.insert(to, Some((from, action)));
            if let Some(fault) = after.fault() {
                return Err(format!("{fault}\n{after:#?}\n{:#?}", story(&seen, to)));
            }
            // Not each: that would cost more than all the rest.
            if seen.len().is_multiple_of(499) && !after.comes_to_rest(settings, 4 * LIFE) {
                return Err(format!("never comes to rest\n{after:#?}\n{:#?}", story(&seen, to)));
            }
            next.push_back((to, after));
        }
    }
    Ok(seen.len())
}

fn story(seen: &HashMap<u128, Option<(u128, Action)>>, end: u128) -> Vec<Action> {
    let mut story = Vec::new();
    let mut at = end;
    while let Some((from, action)) = seen[&at] {
        story.push(action);
        at = from;
    }
    story.reverse();
    story
}

/// Two who drive it, and a replica that picks a new CA up in one go.
fn two() -> (World, Settings) {
    (World::settled(2, 1), Settings { fine: false, ..Settings::default() })
}

#[test]
fn one_controller_and_two_replicas() {
    let worlds = explore(World::settled(1, 2), &Settings::default(), LIFE).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(worlds > 30_000, "{worlds} are not all of them");
}

#[test]
fn two_controllers_and_one_replica() {
    let (world, settings) = two();
    let worlds = explore(world, &settings, LIFE).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(worlds > 30_000, "{worlds} are not all of them");
}

#[test]
fn two_controllers_begin_with_one_authority() {
    let settings = Settings { fine: false, ..Settings::default() };
    let worlds = explore(World::empty(2, 1), &settings, 1).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(worlds > 100, "{worlds} are not all of them");
}

/// Each rule that the model leaves out must be missed: otherwise it looks at nothing.
#[test]
fn the_model_finds_what_each_rule_prevents() {
    let found = |(world, settings): (World, Settings)| {
        let fault = explore(world, &settings, LIFE - 1).expect_err(&format!("{settings:?}"));
        assert!(fault.starts_with("a leaf of"), "{fault}");
    };
    let (world, settings) = two();
    found((world.clone(), Settings { guarded_patches: false, ..settings.clone() }));
    found((world.clone(), Settings { soak: 0, ..settings.clone() }));
    found((world, Settings { lag: 2, ..settings }));
    found((World::settled(1, 2), Settings { unseen_counts: false, retire_after: 0, ..Settings::default() }));
}

/// Larger clusters than can be looked at whole, at random: two who drive the rotation, three replicas, several
/// rotations one after another.
#[test]
fn whatever_the_order_one_authority_is_left() {
    for seed in 0..10_000 {
        let mut random = seed;
        let mut pick = |from: usize| {
            // SplitMix64.
            random = u64::wrapping_add(random, 0x9e37_79b9_7f4a_7c15);
            let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            usize::try_from((mixed ^ (mixed >> 31)) % from as u64).unwrap()
        };
        let settings = Settings::default();
        let mut world = if seed % 4 == 0 { World::empty(2, 3) } else { World::settled(2, 3) };
        for _ in 0..60 {
            let actions = world.actions(&settings, 3 * LIFE);
            // Steps are far more frequent than hours and crashes.
            let steps: Vec<_> = actions.iter().copied().filter(|action| action.is_progress()).collect();
            let action = if pick(5) == 0 { actions[pick(actions.len())] } else { steps[pick(steps.len())] };
            world = world.after(action, &settings);
            if let Some(fault) = world.fault() {
                panic!("seed {seed}: {fault}\n{world:#?}");
            }
        }
        assert!(world.comes_to_rest(&settings, 2 * LIFE), "seed {seed}: never comes to rest\n{world:#?}");
    }
}
