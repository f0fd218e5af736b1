//! One schedule: which step comes next is the seed's choice; first with troubles, then calm until all is quiet.

use upriver_model::Epoch;
use upriver_store::Store;

use crate::faults;
use crate::invariants::{Broken, moved_from_its_base};
use crate::owner::{GitWork, Move, Owner, Standing};
use crate::shared::{Shared, branch_key, ready};
use crate::{Bug, Profile};

/// Steps of the calm part; ten times what any schedule was seen to need.
const CALM_STEPS: usize = 20_000;
/// How long the calm part lasts at least: several looks at the branch.
const CALM_MS: u64 = 400_000;
/// How often a person looks after what waits for a person.
const MEND_MS: u64 = 600_000;
/// When pushes that are still in the air land.
const LATE_MS: u64 = 200_000;

pub(crate) struct World {
    pub(crate) s: Shared,
    pub(crate) owners: Vec<Owner>,
    pub(crate) steps: usize,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Owner(usize, Move),
    Land(usize),
    Change,
    TakeOver,
    Trouble,
    Time,
}

impl World {
    pub(crate) fn new(seed: u64, profile: Profile, bug: Option<Bug>, logging: bool) -> Self {
        let mut s = Shared::new(seed, profile, bug, logging);
        for _ in 0..s.rng.below(4) {
            s.cluster.change(&mut s.rng);
        }
        if !s.rng.once_in(3) {
            faults::first_commit(&mut s);
        }
        Self { s, owners: Vec::new(), steps: 0 }
    }

    pub(crate) fn run(&mut self) -> Result<(), Broken> {
        let busy = 150 + self.s.rng.below(350);
        for _ in 0..busy {
            let action = self.choose();
            self.take(action)?;
        }
        self.calm_down()?;
        self.settle_down()
    }

    fn choose(&mut self) -> Action {
        let mut actions: Vec<(usize, Action)> = Vec::new();
        for (index, owner) in self.owners.iter().enumerate() {
            let moves = owner.moves(&self.s);
            actions.extend(moves.into_iter().map(|next| {
                let weight = match next {
                    Move::Notice => 1,
                    Move::Watch(..) | Move::Configure => 6,
                    Move::Tick => 12,
                    Move::StoreRun
                    | Move::StoreAnswer
                    | Move::GitRun
                    | Move::GitAnswer
                    | Move::ProofSend
                    | Move::ProofAnswer
                    | Move::Inbox
                    | Move::Release => 10,
                };
                (weight, Action::Owner(index, next))
            }));
        }
        for index in 0..self.s.remote.flights.len() {
            let awaited = self.is_awaited(index);
            actions.push((if awaited { 8 } else { 1 }, Action::Land(index)));
        }
        if self.claim_is_free() {
            actions.push((8, Action::TakeOver));
        }
        if self.s.troubles {
            actions.push((5, Action::Change));
            actions.push((4, Action::Time));
            if self.s.profile != Profile::Calm {
                actions.push((3, Action::Trouble));
            }
        } else if actions.is_empty() {
            actions.push((1, Action::Time));
        }
        let total: usize = actions.iter().map(|(weight, _)| weight).sum();
        let mut at = self.s.rng.below(total);
        for (weight, action) in actions {
            if at < weight {
                return action;
            }
            at -= weight;
        }
        Action::Time
    }

    fn is_awaited(&self, flight: usize) -> bool {
        let flight = &self.s.remote.flights[flight];
        let work = self.owners.get(flight.owner).and_then(|owner| owner.git_work.as_ref());
        matches!(work, Some((_, GitWork::Flying(number))) if *number == flight.number)
    }

    /// Free, or its holder's session is silent and may be fenced.
    fn claim_is_free(&self) -> bool {
        let silent =
            |holder: usize| self.owners.get(holder).is_none_or(|owner| owner.standing != Standing::Alive);
        !self.s.is_store_down() && self.s.lease.holder.is_none_or(silent)
    }

    fn take(&mut self, action: Action) -> Result<(), Broken> {
        self.steps += 1;
        match action {
            Action::Owner(index, next) => self.owners[index].make(&mut self.s, next),
            Action::Land(index) => self.land(index),
            Action::Change => {
                let text = self.s.cluster.change(&mut self.s.rng);
                self.s.say(|| text);
                Ok(())
            }
            Action::TakeOver => {
                self.take_over();
                Ok(())
            }
            Action::Trouble => faults::trouble(self),
            Action::Time => {
                self.pass_time();
                Ok(())
            }
        }
    }

    fn pass_time(&mut self) {
        let next = self.owners.iter().filter_map(Owner::deadline).min();
        let next = next.into_iter().chain(self.s.is_store_down().then_some(self.s.store_down_until)).min();
        let now = self.s.now;
        let to = match next {
            Some(next) if next > now => next,
            Some(_) => now + 1,
            None => now + 10_000,
        };
        self.s.move_clock(to);
    }

    /// A successor: its epoch is above what Lease and store know (F17).
    pub(crate) fn take_over(&mut self) {
        let key = branch_key();
        let stored = ready(self.s.store.stored_epoch(&key)).unwrap_or(0);
        let epoch = Epoch::above(self.s.lease.epoch, stored);
        let never = self.s.lease.epoch == 0 && stored == 0;
        let clean = never || self.s.lease.clean;
        let number = self.owners.len();
        self.s.lease = crate::shared::Lease { holder: Some(number), epoch: epoch.as_key(), clean: false };
        self.s.say(|| format!("owner {number} takes the claim at epoch {}, clean {clean}", epoch.as_key()));
        let seed = self.s.rng.number();
        self.owners.push(Owner::new(number, epoch, clean, seed));
    }

    /// A push arrives at the remote: it moves the ref from its base, or is refused.
    pub(crate) fn land(&mut self, index: usize) -> Result<(), Broken> {
        let flight = self.s.remote.flights.remove(index);
        let fits = self.s.remote.tip == flight.old || self.s.has_bug(Bug::NoCompareAndSwap);
        self.s.say(|| format!("push of owner {} ({}) lands: {fits}", flight.owner, flight.new));
        if fits {
            let tip = self.s.remote.tip.clone();
            moved_from_its_base(&self.s.remote, tip.as_ref(), flight.old.as_ref(), &flight.new)?;
            self.s.remote.tip = Some(flight.new.clone());
            let (checks, cluster, remote) = (&mut self.s.checks, &self.s.cluster, &self.s.remote);
            let until = flight.old.as_ref().or(remote.default_tip.as_ref());
            checks.landed(cluster, remote, until, &flight.new)?;
        }
        // Told that it moved, a pusher whose commit is the tip already reads the ref.
        let uncertain = !fits && self.s.remote.tip.as_ref() == Some(&flight.new);
        if let Some(owner) = self.owners.get_mut(flight.owner) {
            owner.push_ended(flight.number, fits, &flight.new, uncertain);
        }
        self.s.check_state()
    }

    fn calm_down(&mut self) -> Result<(), Broken> {
        self.s.troubles = false;
        self.s.say(|| "the troubles are over".to_owned());
        let now = self.s.now;
        self.s.store_down_until = now;
        self.mend();
        for owner in &mut self.owners {
            if owner.standing == Standing::Frozen {
                owner.standing = Standing::Alive;
            }
        }
        Ok(())
    }

    /// A person mends whatever waits for a person.
    fn mend(&mut self) {
        self.s.plans.mend();
        self.s.plan_version += 1;
    }

    fn settle_down(&mut self) -> Result<(), Broken> {
        let begun = self.s.now;
        let mut mended = begun;
        for _ in 0..CALM_STEPS {
            let action = self.choose();
            if matches!(action, Action::Time) && self.is_quiet() {
                let since = self.s.now - begun;
                if since >= LATE_MS && !self.s.remote.flights.is_empty() {
                    self.land(0)?;
                    continue;
                }
                if since >= CALM_MS {
                    return self.finish();
                }
            } else if self.s.now > mended + MEND_MS {
                // The last failure may have been answered after the first repair.
                mended = self.s.now;
                self.mend();
            }
            self.take(action)?;
        }
        Err(Broken {
            rule: "NOSTUCK",
            what: format!("not quiet after {CALM_STEPS} calm steps: {}", self.stuck()),
        })
    }

    fn stuck(&self) -> String {
        let holder = self.s.lease.holder.and_then(|holder| self.owners.get(holder));
        holder
            .map_or_else(|| "nobody holds the claim".to_owned(), |owner| format!("{:?}", owner.engine.view()))
    }

    fn is_quiet(&self) -> bool {
        let alive: Vec<&Owner> =
            self.owners.iter().filter(|owner| owner.standing == Standing::Alive).collect();
        let [owner] = alive[..] else { return false };
        self.s.lease.holder == Some(owner.number) && owner.is_quiet(&self.s)
    }

    fn finish(&mut self) -> Result<(), Broken> {
        let scopes = self.s.plans.scopes();
        let Some(stored) = self.s.inspect() else {
            // Nobody asks a store for nothing.
            if scopes.is_empty() {
                return Ok(());
            }
            return Err(Broken { rule: "FINAL", what: "there is no journal".to_owned() });
        };
        self.s.checks.finally(&stored, &self.s.cluster, &self.s.remote, &scopes)
    }
}
