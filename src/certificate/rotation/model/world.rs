//! A cluster in which anything may happen at any time, small enough to look at all of it.
//!
//! Time goes in ticks. CAs are told by when and by whom they were made. Whoever drives the rotation does
//! so in rounds of single steps, with anything else between two of them, and may crash after each. What a
//! resourceVersion guards is told by a flag that whoever writes sets in all others who have read.

use std::convert::Infallible;
use std::fmt;

use time::{Duration, OffsetDateTime};

use super::super::{CLOCK_SKEW, Certified, Observation, Reason, Schedule, Serving, Signer, State, Step, step_with};

/// How long a CA lives, in ticks.
pub(super) const LIFE: i32 = 6;

/// What a run of the model is about.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// How long an API server may go on with a bundle that its registration no longer has.
    pub(super) lag: i32,
    pub(super) soak: i32,
    pub(super) retire_after: i32,
    /// Whether registrations are patched with the resourceVersion that was read.
    pub(super) guarded_patches: bool,
    /// Whether what happens apart is looked at apart: a replica reads, serves, and begins anew; the replicas
    /// are looked at, and what comes next is decided. Without it there are fewer worlds.
    pub(super) fine: bool,
    /// Whether a replica that did not answer counts as one that may serve anything.
    pub(super) unseen_counts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { lag: 1, soak: 1, retire_after: 1, guarded_patches: true, fine: true, unseen_counts: true }
    }
}

impl Settings {
    fn schedule(&self) -> Schedule {
        Schedule {
            authority_validity: ticks(LIFE),
            leaf_validity: ticks(LIFE),
            soak: ticks(self.soak),
            retire_after: ticks(self.retire_after),
            useless: Duration::ZERO,
        }
    }
}

fn ticks(number: i32) -> Duration {
    Duration::hours(number.into())
}

fn time(tick: i32) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::days(1) + ticks(tick)
}

/// A CA without anything of a CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Toy {
    pub(super) made: i32,
    pub(super) by: usize,
}

impl Toy {
    pub(super) fn expired(self, now: i32) -> bool {
        now >= self.made + LIFE
    }
}

impl Certified for Toy {
    type Id = Self;

    fn id(&self) -> Self {
        *self
    }

    fn not_before(&self) -> OffsetDateTime {
        time(self.made) - CLOCK_SKEW
    }

    fn not_after(&self) -> OffsetDateTime {
        time(self.made + LIFE)
    }
}

impl Signer for Toy {
    type Certificate = Self;

    fn certificate(&self) -> &Self {
        self
    }
}

/// A set of CAs, a bit for each that there can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
struct Bundle(u64);

impl Bundle {
    fn bit(toy: Toy) -> u64 {
        1 << (2 * u64::from(toy.made.unsigned_abs()) + toy.by as u64)
    }

    fn contains(self, toy: Toy) -> bool {
        self.0 & Self::bit(toy) != 0
    }

    fn list(self) -> Vec<Toy> {
        let all = (0..32).flat_map(|made| [Toy { made, by: 0 }, Toy { made, by: 1 }]);
        all.take(64 - self.0.leading_zeros() as usize).filter(|toy| self.contains(*toy)).collect()
    }
}

impl FromIterator<Toy> for Bundle {
    fn from_iter<T: IntoIterator<Item = Toy>>(toys: T) -> Self {
        Self(toys.into_iter().fold(0, |bits, toy| bits | Self::bit(toy)))
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.list()).finish()
    }
}

/// A registration, and what API servers may hold of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Registration {
    bundle: Bundle,
    /// Earlier bundles, with when they were replaced.
    held: Vec<(Bundle, i32)>,
}

/// A replica: what it has read, and the CA of the leaf that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(super) struct Replica {
    read: Option<Toy>,
    pub(super) serves: Option<Toy>,
}

/// How far a round has come, with what is known by then.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) enum Round {
    #[default]
    Idle,
    /// The registrations are read.
    Registrations(Read),
    /// So is the Secret.
    Secret(Read, Option<State<Toy>>, bool),
    /// So are the replicas.
    Observed(Read, Option<State<Toy>>, bool, Vec<Serving<Toy>>),
    /// What is to be written is known.
    Decided(Read, State<Toy>, Reason, bool, Vec<Serving<Toy>>),
    /// The Secret is as it should be; the registrations from this one on are not.
    Patching(Read, State<Toy>, Vec<Serving<Toy>>, usize),
}

impl Round {
    /// Goes over steps that do nothing, and ends a round that cannot but be refused: the world is the same
    /// after them. What is not looked at again is forgotten, for it must not tell two worlds apart.
    fn skip(&mut self, settings: &Settings) {
        match self {
            Self::Decided(_, _, _, true, _) => *self = Self::Idle,
            Self::Patching(read, state, replicas, target) => {
                while *target < 2 && wanted(state, replicas, read.bundles[*target]) == read.bundles[*target] {
                    *target += 1;
                }
                for done in 0..*target {
                    (read.bundles[done], read.changed[done]) = (Bundle::default(), false);
                }
                if *target == 2 || (read.changed[*target] && settings.guarded_patches) {
                    *self = Self::Idle;
                }
            }
            _ => {}
        }
    }
}

fn wanted(state: &State<Toy>, replicas: &[Serving<Toy>], current: Bundle) -> Bundle {
    let observation = Observation { registrations: Vec::new(), replicas: replicas.to_vec() };
    let required = state.anchors().into_iter().copied().collect();
    observation.bundle(required, current.list()).into_iter().collect()
}

/// The registrations as they were read, and which have changed since.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Read {
    bundles: [Bundle; 2],
    changed: [bool; 2],
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: i32,
    pub(super) secret: Option<State<Toy>>,
    registrations: [Registration; 2],
    pub(super) rounds: Vec<Round>,
    pub(super) replicas: Vec<Replica>,
    /// A CA signs that had no time to become known.
    pub(super) emergency: bool,
}

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Advance(usize),
    Crash(usize),
    Read(usize),
    Serve(usize),
    Restart(usize),
}

impl Action {
    /// Whether somebody gets on with their work.
    pub(super) fn is_progress(self) -> bool {
        matches!(self, Self::Advance(_) | Self::Read(_) | Self::Serve(_))
    }
}

impl World {
    /// A cluster in which one CA signs, soon for half of its life, and its predecessor was just retired: the
    /// registrations have it still.
    pub(super) fn settled(controllers: usize, replicas: usize) -> Self {
        let [first, retired] = [0, 1].map(|by| Toy { made: 0, by });
        let bundle = Bundle::from_iter([first, retired]);
        let registration = Registration { bundle, ..Registration::default() };
        Self {
            now: LIFE / 2 - 1,
            secret: Some(State::Stable { signing: first }),
            registrations: [registration.clone(), registration],
            rounds: vec![Round::Idle; controllers],
            replicas: vec![Replica { read: Some(first), serves: Some(first) }; replicas],
            emergency: false,
        }
    }

    /// A cluster in which everything was just created.
    pub(super) fn empty(controllers: usize, replicas: usize) -> Self {
        Self {
            now: 0,
            secret: None,
            registrations: Default::default(),
            rounds: vec![Round::Idle; controllers],
            replicas: vec![Replica::default(); replicas],
            emergency: true,
        }
    }

    /// What may happen next.
    pub(super) fn actions(&self, settings: &Settings, horizon: i32) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.now < horizon {
            actions.push(Action::Tick);
        }
        for (at, round) in self.rounds.iter().enumerate() {
            actions.push(Action::Advance(at));
            if *round != Round::Idle {
                actions.push(Action::Crash(at));
            }
        }
        for (at, replica) in self.replicas.iter().enumerate() {
            let signing = self.secret.as_ref().map(|state| *state.signing());
            if signing.is_some() && replica.read != signing {
                actions.push(Action::Read(at));
            }
            if replica.read.is_some_and(|read| !read.expired(self.now)) && replica.read != replica.serves {
                actions.push(Action::Serve(at));
            }
            if settings.fine && *replica != Replica::default() {
                actions.push(Action::Restart(at));
            }
        }
        actions
    }

    /// The world after that.
    pub(super) fn after(&self, action: Action, settings: &Settings) -> Self {
        let mut world = self.clone();
        match action {
            Action::Tick => {
                world.now += 1;
                for registration in &mut world.registrations {
                    registration.held.retain(|(_, replaced_at)| world.now < replaced_at + settings.lag);
                }
            }
            Action::Advance(at) => world.advance(at, settings),
            Action::Crash(at) => world.rounds[at] = Round::Idle,
            Action::Read(at) => {
                world.replicas[at].read = world.secret.as_ref().map(|state| *state.signing());
                if !settings.fine && world.replicas[at].read.is_some_and(|read| !read.expired(world.now)) {
                    world.replicas[at].serves = world.replicas[at].read;
                }
            }
            Action::Serve(at) => world.replicas[at].serves = world.replicas[at].read,
            Action::Restart(at) => world.replicas[at] = Replica::default(),
        }
        let known = |state: &State<Toy>| world.bundles().all(|bundle| bundle.contains(*state.signing()));
        if world.emergency && world.secret.as_ref().is_some_and(known) {
            world.emergency = false;
        }
        for round in &mut world.rounds {
            round.skip(settings);
        }
        // It is all the same which of two it is.
        world.rounds.sort_by_cached_key(super::digest);
        world.replicas.sort_unstable();
        world
    }

    fn advance(&mut self, at: usize, settings: &Settings) {
        let round = std::mem::take(&mut self.rounds[at]);
        self.rounds[at] = match round {
            Round::Idle => {
                let bundles = self.registrations.each_ref().map(|registration| registration.bundle);
                Round::Registrations(Read { bundles, changed: [false; 2] })
            }
            Round::Registrations(read) => Round::Secret(read, self.secret.clone(), false),
            Round::Secret(read, state, changed) => {
                let unseen = if settings.unseen_counts { Some(Serving::Unseen) } else { None };
                let serving = |replica: &Replica| replica.serves.map(Serving::By).or(unseen);
                let observed =
                    Round::Observed(read, state, changed, self.replicas.iter().filter_map(serving).collect());
                if settings.fine {
                    observed
                } else {
                    self.rounds[at] = observed;
                    return self.advance(at, settings);
                }
            }
            Round::Observed(read, state, changed, replicas) => {
                let observation =
                    Observation { registrations: read.bundles.map(Bundle::list).to_vec(), replicas: replicas.clone() };
                let make = || Ok::<_, Infallible>(self.new_toy());
                let Ok(step) = step_with(state.as_ref(), time(self.now), &observation, &settings.schedule(), make);
                match (step, state) {
                    (Step::Write(state, reason), _) => Round::Decided(read, state, reason, changed, replicas),
                    (Step::Keep, Some(state)) => Round::Patching(read, state, replicas, 0),
                    (Step::Keep, None) => panic!("nothing can be kept where nothing is"),
                }
            }
            Round::Decided(read, state, reason, _, replicas) => {
                self.write(at, &state, reason);
                Round::Patching(read, state, replicas, 0)
            }
            Round::Patching(read, state, replicas, target) => {
                self.patch(at, target, wanted(&state, &replicas, read.bundles[target]));
                Round::Patching(read, state, replicas, target + 1)
            }
        };
    }

    fn write(&mut self, by: usize, state: &State<Toy>, reason: Reason) {
        if reason.is_emergency() {
            let replaced = self.secret.as_ref().map(|state| *state.signing());
            assert!(replaced.is_some_and(|replaced| replaced.expired(self.now)), "an emergency that is none");
            self.emergency = true;
        }
        self.secret = Some(state.clone());
        for (_, round) in self.rounds.iter_mut().enumerate().filter(|(at, _)| *at != by) {
            match round {
                Round::Secret(_, _, changed)
                | Round::Observed(_, _, changed, _)
                | Round::Decided(_, _, _, changed, _) => {
                    *changed = true;
                }
                Round::Idle | Round::Registrations(_) | Round::Patching(..) => {}
            }
        }
    }

    fn patch(&mut self, by: usize, target: usize, bundle: Bundle) {
        let registration = &mut self.registrations[target];
        let replaced = std::mem::replace(&mut registration.bundle, bundle);
        registration.held.push((replaced, self.now));
        registration.held.sort_unstable();
        registration.held.dedup();
        for (_, round) in self.rounds.iter_mut().enumerate().filter(|(at, _)| *at != by) {
            match round {
                Round::Patching(_, _, _, from) if *from > target => {}
                Round::Registrations(read)
                | Round::Secret(read, ..)
                | Round::Observed(read, ..)
                | Round::Decided(read, ..)
                | Round::Patching(read, ..) => read.changed[target] = true,
                Round::Idle => {}
            }
        }
    }

    /// A CA made now, and told from one that was made at the same time.
    fn new_toy(&self) -> Toy {
        let first = Toy { made: self.now, by: 0 };
        let has = |state: &State<Toy>| state.anchors().contains(&&first);
        let taken = self.secret.as_ref().is_some_and(has)
            || self.rounds.iter().any(|round| matches!(round, Round::Decided(_, state, ..) if has(state)));
        Toy { by: usize::from(taken), ..first }
    }

    /// Every bundle that an API server may hold.
    fn bundles(&self) -> impl Iterator<Item = Bundle> {
        self.registrations.iter().flat_map(|one| one.held.iter().map(|(bundle, _)| *bundle).chain([one.bundle]))
    }

    /// The leaf that is served and that an API server would refuse.
    pub(super) fn fault(&self) -> Option<String> {
        if self.emergency {
            return None;
        }
        let served = self.replicas.iter().filter_map(|replica| replica.serves);
        served.filter(|leaf| !leaf.expired(self.now)).find_map(|leaf| {
            let refusing = self.bundles().find(|bundle| !bundle.contains(leaf))?;
            Some(format!("a leaf of {leaf:?} is served, and an API server may hold {refusing:?}"))
        })
    }

    /// Whether a rotation is over: one CA, in every place.
    pub(super) fn at_rest(&self) -> bool {
        let Some(State::Stable { signing }) = &self.secret else { return false };
        self.registrations.iter().all(|registration| registration.bundle == Bundle::from_iter([*signing]))
            && self.replicas.iter().all(|replica| replica.serves == Some(*signing))
    }

    /// Lets everybody do their work, in order and without a fault, for as many ticks, until a CA that was made
    /// after this one is alone.
    pub(super) fn comes_to_rest(&self, settings: &Settings, within: i32) -> bool {
        let mut world = self.clone();
        let begun = world.now;
        while world.now < begun + within {
            for _ in 0..2 * world.rounds.len() {
                // One whole round, or what is left of one.
                let busy = |world: &Self| world.rounds.iter().position(|round| *round != Round::Idle);
                world = world.after(Action::Advance(busy(&world).unwrap_or(0)), settings);
                while let Some(at) = busy(&world) {
                    world = world.after(Action::Advance(at), settings);
                }
                let of_replica = |action: &Action| matches!(action, Action::Read(_) | Action::Serve(_));
                while let Some(action) = world.actions(settings, 0).into_iter().find(of_replica) {
                    world = world.after(action, settings);
                }
                // Looked at after each: the next rotation may begin in the same tick.
                let young = |state: &State<Toy>| state.signing().made > 0;
                if world.at_rest() && world.secret.as_ref().is_some_and(young) && !world.emergency {
                    return true;
                }
            }
            world = world.after(Action::Tick, settings);
        }
        false
    }
}
