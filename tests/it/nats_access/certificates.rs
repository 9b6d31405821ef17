//! A certificate authority for one test, with certificates of a server and a client.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::path::PathBuf;
use tempfile::TempDir;

/// Files of the authority: `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`.
pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    pub fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        std::fs::write(dir.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        for (name, usage, host) in [
            ("server", ExtendedKeyUsagePurpose::ServerAuth, "127.0.0.1"),
            ("client", ExtendedKeyUsagePurpose::ClientAuth, "client.test"),
        ] {
            let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate().unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            std::fs::write(dir.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The TLS block for the configuration of nats-server.
    pub fn server(&self, more: &str) -> String {
        let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| self.path(name));
        format!("tls {{ cert_file: {cert:?}, key_file: {key:?}, ca_file: {ca:?}, {more} }}\n")
    }
}
