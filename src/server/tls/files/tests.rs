use super::*;
use std::fs;
use std::os::unix::fs::symlink;

use rcgen::{CertificateParams, KeyPair};
use tokio::task::yield_now;
use tokio::time;

struct Made {
    cert: String,
    key: String,
}

fn made() -> Made {
    let key = KeyPair::generate().unwrap();
    let cert = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    Made { cert: cert.pem(), key: key.serialize_pem() }
}

/// A directory as the kubelet lays out a mounted Secret: `tls.crt` → `..data/tls.crt`, and
/// `..data` → a directory that is replaced as a whole.
struct Secret(tempfile::TempDir);

impl Secret {
    fn new(made: &Made) -> Self {
        let secret = Self(tempfile::tempdir().unwrap());
        secret.publish("..one", &made.cert, &made.key);
        for name in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{name}"), secret.0.path().join(name)).unwrap();
        }
        secret
    }

    fn publish(&self, version: &str, cert: &str, key: &str) {
        let root = self.0.path();
        fs::create_dir(root.join(version)).unwrap();
        fs::write(root.join(version).join("tls.crt"), cert).unwrap();
        fs::write(root.join(version).join("tls.key"), key).unwrap();
        symlink(version, root.join("..data_tmp")).unwrap();
        fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    }

    fn cert(&self) -> PathBuf {
        self.0.path().join("tls.crt")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("tls.key")
    }
}

/// Waits until the follower has counted `count` reloads with this result.
async fn counted(metrics: &Metrics, result: &str, count: u32) {
    let series = format!("gpufence_certificate_reloads_total{{result=\"{result}\"}} {count}\n");
    for _ in 0..1_000 {
        if metrics.encode().unwrap().contains(&series) {
            return;
        }
        // Moves the paused clock; the read itself runs on a thread of its own.
        time::sleep(Duration::from_millis(100)).await;
        yield_now().await;
    }
    panic!("never saw {series}");
}

#[tokio::test(start_paused = true)]
async fn a_swapped_secret_is_served_and_a_broken_one_is_not() {
    let (first, second) = (made(), made());
    let secret = Secret::new(&first);
    let (files, credentials) = Files::open(&secret.cert(), &secret.key()).unwrap();
    let began = credentials.fingerprint();
    let identity = Arc::new(Identity::new(credentials));
    let metrics = Arc::new(Metrics::new());
    let follower = tokio::spawn(files.follow(Arc::clone(&identity), Arc::clone(&metrics)));

    secret.publish("..two", &second.cert, &first.key);
    counted(&metrics, "failure", 1).await;
    assert_eq!(identity.current().fingerprint(), began, "a half-changed pair is not served");

    secret.publish("..three", &second.cert, &second.key);
    counted(&metrics, "success", 1).await;
    assert_ne!(identity.current().fingerprint(), began);

    fs::remove_file(secret.key()).unwrap();
    counted(&metrics, "failure", 2).await;
    assert_ne!(identity.current().fingerprint(), began, "the last good pair stays");
    follower.abort();
}

#[test]
fn faults_name_the_file_what_is_in_it_and_what_should_be() {
    let (one, other) = (made(), made());
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let (cert, key) = (write("tls.crt", &one.cert), write("tls.key", &one.key));
    let chain = write("chain.crt", &format!("{}{}", one.cert, other.cert));
    assert!(Credentials::from_files(&chain, &key).is_ok(), "a chain of two");

    let fault = |cert: &Path, key: &Path| Credentials::from_files(cert, key).unwrap_err().to_string();
    let text = fault(&key, &key);
    assert!(text.contains("tls.key: found `BEGIN PRIVATE KEY`; expected PEM blocks"), "{text}");
    let text = fault(&cert, &cert);
    assert!(text.contains("tls.crt: found `BEGIN CERTIFICATE`; expected one unencrypted"), "{text}");
    let text = fault(&cert, &write("empty.key", ""));
    assert!(text.contains("empty.key: found 0 bytes without a PEM block"), "{text}");
    let text = fault(&cert, &write("other.key", &other.key));
    assert!(text.contains("does not belong to the first certificate"), "{text}");
    let text = fault(&directory.path().join("absent.crt"), &key);
    assert!(text.ends_with("absent.crt"), "{text}");
}
