//! Who creates what, and when did the API server accept it?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use upriver_testkit::{Stack, User};

use crate::{Cli, Failure, NAMESPACE, Scenario};

/// People who make changes in turn.
pub(crate) const PEOPLE: [User; 3] = [User::Alice, User::Bob, User::Carol];

/// What the API server accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Moment of the answer, by name.
    pub(crate) at: BTreeMap<String, Instant>,
    begun: Instant,
}

impl Accepted {
    /// From the first request to the last answer.
    pub(crate) fn took(&self) -> Duration {
        self.last().saturating_duration_since(self.begun)
    }

    /// Moment of the last answer.
    pub(crate) fn last(&self) -> Instant {
        self.at.values().copied().max().unwrap_or(self.begun)
    }
}

/// Makes all changes of the scenario.
///
/// # Errors
/// If the API server refuses one.
pub(crate) async fn run(stack: &Stack, cli: &Cli) -> Result<Accepted, Failure> {
    let clients: Vec<Client> = PEOPLE.iter().take(cli.users()).map(|user| stack.client(*user)).collect();
    let begun = Instant::now();
    let at = match cli.scenario {
        Scenario::Burst => burst(&clients, cli).await?,
        Scenario::Steady => steady(&clients, cli).await?,
    };
    Ok(Accepted { at: at.into_iter().collect(), begun })
}

type Answer = Result<(String, Instant), kube::Error>;

async fn burst(clients: &[Client], cli: &Cli) -> Result<Vec<(String, Instant)>, Failure> {
    let next = Arc::new(AtomicUsize::new(0));
    let count = cli.count();
    let mut workers = JoinSet::new();
    for _ in 0..cli.in_flight.max(1) {
        let (next, clients) = (Arc::clone(&next), clients.to_vec());
        workers.spawn(async move {
            let mut answers = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return Ok::<_, kube::Error>(answers);
                }
                answers.push(create(&clients[index % clients.len()], index).await?);
            }
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(answers) = workers.join_next().await {
        all.extend(answers??);
    }
    Ok(all)
}

async fn steady(clients: &[Client], cli: &Cli) -> Result<Vec<(String, Instant)>, Failure> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / cli.rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let permits = Arc::new(Semaphore::new(cli.in_flight.max(1)));
    let mut requests: JoinSet<Answer> = JoinSet::new();
    for index in 0..cli.count() {
        ticks.tick().await;
        let permit = Arc::clone(&permits).acquire_owned().await?;
        let client = clients[index % clients.len()].clone();
        requests.spawn(async move {
            let answer = create(&client, index).await;
            drop(permit);
            answer
        });
    }
    let mut all = Vec::with_capacity(cli.count());
    while let Some(answer) = requests.join_next().await {
        all.push(answer??);
    }
    Ok(all)
}

async fn create(client: &Client, index: usize) -> Answer {
    let name = format!("change-{index:05}");
    let api = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    let data = BTreeMap::from([
        ("index".to_owned(), index.to_string()),
        ("settings.properties".to_owned(), format!("retries={}\ncolour=blue\nlevel=info\n", index % 7)),
    ]);
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        labels: Some([("app".to_owned(), format!("app-{}", index % 20))].into()),
        ..ObjectMeta::default()
    };
    let object = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    api.create(&PostParams::default(), &object).await?;
    Ok((name, Instant::now()))
}
