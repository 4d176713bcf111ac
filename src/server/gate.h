// server/gate.h - who may call, and what is refused before a body is read.
//
// Threads: the server's.
//
//   Gate gate(context);
//   if (auto refusal = gate.refuse(request, find_route(request.method, request.path))) return *refusal;
#pragma once

#include <optional>
#include <string>

#include "server/context.h"

namespace deepinfer {

class Gate {
 public:
  explicit Gate(ServerContext& context) : context_(context) {}

  struct Identity {
    std::string key;  // name of the key's record
    std::string tenant;
    bool known = false;
    std::optional<RetentionClass> retention;
    QuotaLimits limits;
  };
  Identity identify(const HttpRequest& request) const;
  // The client's x-request-id when it is a plain one, else a new one.
  std::string request_id_of(const HttpRequest& request);
  // Of every answer: request id, CORS.
  HttpHeaders common_headers(const HttpRequest& request, const std::string& request_id) const;

  // 401, 404, 405, 415, 429, 503 in the dialect of the path, or nothing.
  std::optional<HttpResponse> refuse(const HttpRequest& request, const RouteMatch& match);
  // The answer to bytes that are no request, in the dialect of the path where one was read.
  HttpResponse malformed(const HttpFault& fault, const HttpRequest* head);
  // The answer to OPTIONS.
  HttpResponse preflight(const HttpRequest& request) const;

 private:
  std::optional<HttpResponse> refuse_spender(const HttpRequest& request, const RouteMatch& match);
  std::optional<HttpResponse> refuse_stranger(const HttpRequest& request, const RouteMatch& match);
  HttpResponse error_response(const HttpRequest& request, int status, const std::string& message);

  ServerContext& context_;
};

}  // namespace deepinfer
