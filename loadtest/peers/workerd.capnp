using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "objects", disk = (writable = true)),
  ],
  sockets = [(name = "http", http = (), service = "main")],
);

const worker :Workerd.Worker = (
  modules = [(name = "worker", esModule = embed "workerd.mjs")],
  compatibilityDate = "2025-01-01",
  durableObjectNamespaces = [(className = "Resident", uniqueKey = "resident", enableSql = true)],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [(name = "residents", durableObjectNamespace = "Resident")],
);
