//! The kinds of objects in which a cluster keeps reports.

use clap::ValueEnum;

/// The kinds of objects in which a cluster keeps reports, by whose definitions they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportForm {
    /// The kinds of openreports.io/v1alpha1
    #[value(name = "openreports")]
    OpenReports,
    /// The kinds of wgpolicyk8s.io/v1alpha2, which are older
    #[value(name = "policyreports")]
    PolicyReports,
}

/// A kind of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportKind {
    /// The kind.
    pub kind: &'static str,
    /// The resource.
    pub plural: &'static str,
}

impl ReportForm {
    /// The API group.
    #[must_use]
    pub fn group(self) -> &'static str {
        match self {
            Self::OpenReports => "openreports.io",
            Self::PolicyReports => "wgpolicyk8s.io",
        }
    }

    /// The version.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::OpenReports => "v1alpha1",
            Self::PolicyReports => "v1alpha2",
        }
    }

    /// Group and version.
    #[must_use]
    pub fn api_version(self) -> String {
        format!("{}/{}", self.group(), self.version())
    }

    /// The kind of reports about what is in a namespace.
    #[must_use]
    pub fn of_namespaces(self) -> ReportKind {
        match self {
            Self::OpenReports => ReportKind { kind: "Report", plural: "reports" },
            Self::PolicyReports => ReportKind { kind: "PolicyReport", plural: "policyreports" },
        }
    }

    /// The kind of reports about what is in no namespace.
    #[must_use]
    pub fn of_cluster(self) -> ReportKind {
        match self {
            Self::OpenReports => ReportKind { kind: "ClusterReport", plural: "clusterreports" },
            Self::PolicyReports => ReportKind { kind: "ClusterPolicyReport", plural: "clusterpolicyreports" },
        }
    }

    /// Where the definitions of the kinds are to be had.
    #[must_use]
    pub fn home(self) -> &'static str {
        match self {
            Self::OpenReports => "https://github.com/openreports/reports-api",
            Self::PolicyReports => "https://github.com/kubernetes-sigs/wg-policy-prototypes",
        }
    }
}
