//! Tests of the files that follow the store.

use super::*;
use base::clock;
use definitions::agent::AgentRecord;
use serde_json::json;

fn agent(document: Value) -> Definition {
    Definition::Agent(AgentRecord::from_document(document, clock::now()).unwrap())
}

fn files(folder: &Path) -> DefinitionFiles {
    let settings = Settings { agents_dir: folder.join("agents"), ..Settings::default() };
    fs::create_dir(&settings.agents_dir).unwrap();
    DefinitionFiles::new(&settings)
}

async fn written(files: &DefinitionFiles, definition: &Definition, source: Option<&str>) -> Result<(), FileError> {
    files.prepare(definition, source).await?.unwrap().write()
}

#[tokio::test]
async fn a_change_goes_into_the_file_of_its_id_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let (own, other) = (folder.path().join("agents/shop.yml"), folder.path().join("agents/b.json"));
    fs::write(&own, "# 店\nid: sales\nsop: 旧\n").unwrap();
    fs::write(&other, r#"{"id": "b"}"#).unwrap();
    written(&files, &agent(json!({"id": "sales", "sop": "新"})), Some("# 新店\nid: sales\nsop: 新\n")).await.unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "# 新店\nid: sales\nsop: 新\n");
    written(&files, &agent(json!({"sop": "新", "id": "sales"})), None).await.unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "# 新店\nid: sales\nsop: 新\n", "comments of the same document stay");
    written(&files, &agent(json!({"id": "sales", "sop": "一\n二\n"})), None).await.unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "id: sales\nsop: |\n  一\n  二\n");
    written(&files, &agent(json!({"id": "b", "sop": "x"})), Some("id: b\nsop: x\n")).await.unwrap();
    assert_eq!(load::file(&other).unwrap().document, json!({"id": "b", "sop": "x"}), "a JSON file stays JSON");
    written(&files, &agent(json!({"id": "新店"})), None).await.unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("agents/新店.yaml")).unwrap(), "id: 新店\n");
    assert_eq!(fs::read_dir(folder.path().join("agents")).unwrap().count(), 3, "no file remains");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error_before_anything_is_applied() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let path = folder.path().join("agents/sales.yaml");
    let sales = agent(json!({"id": "sales", "sop": "新"}));
    fs::write(&path, "id: [").unwrap();
    let error = written(&files, &sales, None).await.unwrap_err();
    assert_eq!(error.code(), "file_in_the_way");
    fs::write(&path, "id: sales\nsop: 旧\n").unwrap();
    let mut rights = fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&path, rights).unwrap();
    let error = written(&files, &sales, None).await.unwrap_err();
    assert_eq!(error.code(), "file_not_written");
    assert!(error.to_string().contains("read-only") && error.to_string().contains("nothing is applied"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "id: sales\nsop: 旧\n");
    // A change that the store refuses leaves nothing behind.
    let other = agent(json!({"id": "b"}));
    drop(files.prepare(&other, None).await.unwrap());
    assert_eq!(fs::read_dir(folder.path().join("agents")).unwrap().count(), 1);
    let nowhere = Settings { agents_dir: folder.path().join("none"), ..Settings::default() };
    assert!(DefinitionFiles::new(&nowhere).prepare(&other, None).await.unwrap().is_none(), "nothing is watched");
}
