// Creates or updates the roles and users of roles.json. A second run changes the passwords to those in the environment.
//
//   mongosh "mongodb://admin@host/?replicaSet=rs0&tls=true&tlsCAFile=ca.pem" --file deploy/mongodb/setup.js
//
// TW_MONGODB_WORKER, TW_MONGODB_SCHEDULER, TW_MONGODB_GATEWAY and TW_MONGODB_OPERATOR are the passwords. MONGODB_DATABASE is the
// database, `turnwheel` unless given.
//
// On a new server, from the same host: MONGODB_HOST (such as mongodb:27017) initiates a replica set of this member, and
// TW_MONGODB_ADMIN is the password of the user `admin`, who manages users and the set and is created if it is missing.
const fs = require("fs");
const path = require("path");

const { roles, users } = JSON.parse(fs.readFileSync(path.join(__dirname, "roles.json"), "utf8"));
const database = process.env.MONGODB_DATABASE || "turnwheel";
const admin = db.getSiblingDB("admin");

function password(name) {
  const value = process.env[name];
  if (!value || value === "change-me") {
    throw new Error(`${name} is not set, or has the value of an example; set it, for example to \`openssl rand -hex 24\``);
  }
  return value;
}

function initiate(host) {
  if (!admin.hello().setName) rs.initiate({ _id: "rs0", members: [{ _id: 0, host }] });
  for (let tries = 0; !admin.hello().isWritablePrimary; tries++) {
    if (tries > 300) throw new Error(`${host} has not become the primary within a minute; see its log`);
    sleep(200);
  }
}

function logIn() {
  if (admin.runCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers.length > 0) return;
  const pwd = password("TW_MONGODB_ADMIN");
  try {
    admin.auth("admin", pwd);
  } catch (refused) {
    // Only on a server without users, from the same host.
    admin.createUser({ user: "admin", pwd, roles: ["userAdminAnyDatabase", "clusterAdmin"] });
    admin.auth("admin", pwd);
  }
}

function privileges({ database: everywhere, collections }) {
  const of = (collection, actions) => ({ resource: { db: database, collection }, actions });
  const each = Object.entries(collections).map(([collection, actions]) => of(collection, actions));
  return everywhere ? [of("", everywhere), ...each] : each;
}

// Before any change, so that a missing password changes nothing.
const passwords = Object.fromEntries(Object.entries(users).map(([name, user]) => [name, password(user.password)]));
if (process.env.MONGODB_HOST) initiate(process.env.MONGODB_HOST);
logIn();
for (const [name, role] of Object.entries(roles)) {
  const definition = { privileges: privileges(role), roles: role.inherits || [] };
  if (admin.getRole(name)) admin.updateRole(name, definition);
  else admin.createRole({ role: name, ...definition });
}
for (const [name, user] of Object.entries(users)) {
  const definition = { pwd: passwords[name], roles: user.roles };
  if (admin.getUser(name)) admin.updateUser(name, definition);
  else admin.createUser({ user: name, ...definition });
}
print(`mongodb: the users ${Object.keys(users).join(", ")} and their roles on the database ${database} are up to date`);
