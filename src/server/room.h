// server - what answers HTTP: routes, keys, health, metrics, access log, batches. It joins the rooms net (bytes), api (wire
// forms) and host (engine); each of them knows nothing of the others.
//
//   ServeSettings settings;
//   DI_TRY(auto server, Server::open(settings));   // the port is bound
//   DI_CHECK_OK(server->load(progress));           // the model; until then everything but health answers 503
//   server->drain();
#pragma once
