//! The `levers` section: who may change what the fence stands on.

use super::exemption::{OF_SOME, names_every_account, names_everybody, of_every_namespace};
use super::reader::Table;
use super::schema::{distinct, patterns};
use super::syntax;
use crate::policy::{Action, Levers};

const KEYS: [&str; 3] = ["users", "groups", "serviceAccounts"];

/// Reads the section out of the whole contract. It must name somebody where the rule `lever-change` has an action:
/// otherwise nobody could label a namespace or a node again.
pub(super) fn read(root: &Table<'_>, action: Action) -> Levers {
    let is_needed = action > Action::Off;
    let valid = format!(
        "who may change what the fence stands on, with {}: lever-change is {}",
        KEYS.join(", "),
        action.as_str()
    );
    let node = if is_needed { root.require("levers", &valid) } else { root.get("levers") };
    let before = root.faults();
    let Some((node, table)) = node.and_then(|node| Some((node.clone(), node.table(&KEYS)?))) else {
        return Levers::default();
    };
    let list = |key: &str, valid: &str, check: fn(&str) -> Result<(), String>| {
        table.written(key).map(|node| patterns(&node, node.full_list(valid), check)).unwrap_or_default()
    };
    let groups = table.written("groups").map(|node| distinct(node.full_list("at least one group"), syntax::group_name));
    let levers = Levers {
        users: list("users", "at least one user name", syntax::user_pattern),
        groups: groups.unwrap_or_default(),
        service_accounts: list("serviceAccounts", "at least one service account", syntax::service_account_pattern),
    };
    if root.faults() == before && levers.is_empty() && is_needed {
        node.fault_found("nobody", valid);
    }
    if names_everybody(|user, group| levers.include(user, |wanted| wanted == group)) {
        node.fault_found("everybody", "users, groups and serviceAccounts of some");
    } else if of_every_namespace(&levers.service_accounts)
        || names_every_account(|user, is_in| levers.include(user, is_in))
    {
        node.fault_found("service accounts in every namespace", OF_SOME);
    }
    levers
}
