//! Git jobs of one process, one at a time; a push may outlive the one who waits for it.

use upriver_engine::branch::{Base, Command, Event, Unit, UnitKind};
use upriver_model::{CommitId, Failure, FailureClass, JournalHeader};

use crate::Bug;
use crate::invariants::Broken;
use crate::owner::{GitWork, Owner};
use crate::remote::parent;
use crate::shared::Shared;

impl Owner {
    pub(crate) fn git_run(&mut self, s: &mut Shared) -> Result<(), Broken> {
        let current = self.engine.life();
        if self.git_work.is_none() {
            let Some((life, command)) = self.git_queue.pop_front() else { return Ok(()) };
            if life != current && life != u32::MAX {
                return Ok(());
            }
            self.git_work = Some((life, GitWork::Waiting(command)));
        }
        let Some((life, GitWork::Waiting(command))) = self.git_work.take() else { return Ok(()) };
        let work = self.git_job(s, command)?;
        self.git_work = Some((life, work));
        Ok(())
    }

    fn git_job(&mut self, s: &mut Shared, command: Command) -> Result<GitWork, Broken> {
        Ok(GitWork::Done(match command {
            Command::Fetch { until } => {
                let fetched = s.remote.fetch(until.as_ref(), &self.targets());
                self.fetches += 1;
                self.fetched.insert(fetched.base.expected_old().cloned(), self.fetches);
                Event::Fetched(Ok(Box::new(fetched)))
            }
            Command::Build { base, units } => {
                self.trace(s, &base, &units);
                let built = s.remote.build(&base, &units, &self.targets(), &self.own.1);
                self.built = built.new.clone().map(|new| (base.expected_old().cloned(), new));
                Event::Built(Ok(Box::new(built)))
            }
            Command::Push => return self.push(s),
            _ => Event::RefRead(Ok(s.remote.tip.clone())),
        }))
    }

    /// As the operator's Git thread does: once per loss.
    fn trace(&mut self, s: &Shared, base: &Base, units: &[(Unit, JournalHeader)]) {
        let number = |(unit, _): &(Unit, JournalHeader)| match &unit.kind {
            UnitKind::Replay(replayed) => replayed.reclaim,
            UnitKind::Window | UnitKind::Fence => None,
        };
        if let Some(loss) = units.iter().filter_map(number).max().filter(|loss| *loss != self.own.0)
            && !s.has_bug(Bug::CommitsForgotten)
        {
            self.own = (loss, s.remote.own_files(parent(base)));
        }
    }

    fn push(&mut self, s: &mut Shared) -> Result<GitWork, Broken> {
        let Some((old, new)) = self.built.clone() else {
            let failure = Failure::new(FailureClass::Internal, "nothing was built");
            return Ok(GitWork::Done(Event::Pushed(Err(failure))));
        };
        let proven = self.fetched.get(&old).is_none_or(|fetch| *fetch <= self.proven);
        let own = self.own_tip.is_some() && self.own_tip == old;
        crate::invariants::proven_before_push(self.number, own || proven)?;
        let flight = s.remote.send(self.number, old, new);
        Ok(GitWork::Flying(flight))
    }

    /// A push came to its end at the remote.
    pub(crate) fn push_ended(&mut self, flight: u64, landed: bool, new: &CommitId, uncertain: bool) {
        if landed {
            self.own_tip = Some(new.clone());
        }
        let Some((_, work @ GitWork::Flying(_))) = &mut self.git_work else { return };
        if !matches!(work, GitWork::Flying(number) if *number == flight) {
            return;
        }
        let result = if uncertain {
            Err(Failure::new(FailureClass::Uncertain, "the connection broke"))
        } else if landed {
            Ok(())
        } else {
            Err(Failure::new(FailureClass::Superseded, "the branch moved"))
        };
        *work = GitWork::Done(Event::Pushed(result));
    }

    /// The connection of a push breaks; the push itself may be anywhere.
    pub(crate) fn lose_push_answer(&mut self, bug: bool) -> bool {
        let Some((_, work @ GitWork::Flying(_))) = &mut self.git_work else { return false };
        let failure = Failure::new(FailureClass::Uncertain, "the connection broke");
        *work = GitWork::Done(Event::Pushed(if bug { Ok(()) } else { Err(failure) }));
        true
    }

    /// The next Git job fails with a class.
    pub(crate) fn fail_git(&mut self, class: FailureClass) -> bool {
        let Some((_, work @ GitWork::Waiting(_))) = &mut self.git_work else { return false };
        let failure = Failure::new(class, "the host said no");
        let event = match work {
            GitWork::Waiting(Command::Fetch { .. }) => Event::Fetched(Err(failure)),
            GitWork::Waiting(Command::Build { .. }) => Event::Built(Err(failure)),
            GitWork::Waiting(Command::Push) => Event::Pushed(Err(failure)),
            GitWork::Waiting(_) => Event::RefRead(Err(failure)),
            GitWork::Flying(_) | GitWork::Done(_) => return false,
        };
        *work = GitWork::Done(event);
        true
    }

    /// Takes the next Git job without running it, so that it can be made to fail.
    pub(crate) fn stage_git(&mut self) {
        if self.git_work.is_none()
            && let Some((life, command)) = self.git_queue.pop_front()
            && life == self.engine.life()
        {
            self.git_work = Some((life, GitWork::Waiting(command)));
        }
    }
}
