// net/piecewise_body.h - a Beast body whose pieces go to Value::take(std::string_view) as they come. Inside the room only.
//
//   struct Collected { std::string text; void take(std::string_view piece) { text += piece; } };
//   http::request_parser<PiecewiseBody<Collected>> parser;
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <string_view>

namespace deepinfer {

template <class Value>
struct PiecewiseBody {
  using value_type = Value;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::beast::error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::beast::error_code& ec) {
      ec = {};
      size_t taken = 0;
      for (auto at = boost::asio::buffer_sequence_begin(buffers); at != boost::asio::buffer_sequence_end(buffers); ++at) {
        const boost::asio::const_buffer buffer = *at;
        body_.take(std::string_view(static_cast<const char*>(buffer.data()), buffer.size()));
        taken += buffer.size();
      }
      return taken;
    }
    void finish(boost::beast::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace deepinfer
