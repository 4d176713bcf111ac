// net - bytes between processes: an HTTP/1.1 server and client on Boost.Asio and Beast, TLS, compressed bodies, limits and
// deadlines for everything a peer can do slowly, graceful drain; frames within a cluster, large ones over UCX. It knows no
// language model. Boost, OpenSSL and UCX are seen in this room only.
//
//   DI_TRY(auto server, HttpServer::open({.port = 8080}, handler));      // http_server.h
//   HttpClient client({.timeout_us = 5'000'000});                       // http_client.h
//   DI_TRY(HttpReply reply, client.send({.url = "http://127.0.0.1:8080/"}));
#pragma once

#include "net/compression.h"
#include "net/digest.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/link_fetcher.h"
#include "net/request_reader.h"
