// Cheap SSE load generator (epoll, one thread). args: port streams rounds path bodyfile [pid-of-gateway]
// The file may have several bodies, with a NUL between two: requests take them in turns.
// Counts "data: " events, checks the last one ([DONE], or the end of a response or message), reports TTFT, stamp latency (text
// containing T<ns of CLOCK_MONOTONIC>).
// Environment: KEY = bearer key; STAGGER_US = time between the starts of the first N streams (0: all at once),
// whose times count from when they were due;
// PORTS = ports in place of the one given, with commas, each connection to one of them by chance;
// HOST = the address that is connected to (127.0.0.1); PLAIN = answers are no streams: a whole one is an event (of chats and embeddings);
// HOLD = a load that goes on: says "begun" when every stream has had
// an event, then answers each line on standard input with the figures since the line before; ends with its input, or as
// soon as a stream has ended. After the line "end" streams may end, and the last line is said when all have.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <unistd.h>
#include <fcntl.h>
#include <time.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <algorithm>
#include <random>
#include <fstream>
#include <sstream>
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static long nowns() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
static double cpu() { rusage r; getrusage(RUSAGE_SELF, &r); return r.ru_utime.tv_sec + r.ru_utime.tv_usec / 1e6 + r.ru_stime.tv_sec + r.ru_stime.tv_usec / 1e6; }
static double gcpu(int pid) { char p[64]; snprintf(p, 64, "/proc/%d/stat", pid); FILE* f = fopen(p, "r"); if (!f) return 0; char b[1024]; size_t n = fread(b, 1, 1023, f); b[n] = 0; fclose(f); char* q = strrchr(b, ')') + 2; long u = 0, s = 0; int fld = 3; for (char* t = strtok(q, " "); t; t = strtok(0, " "), fld++) { if (fld == 14) u = atol(t); if (fld == 15) { s = atol(t); break; } } return (u + s) / (double)sysconf(_SC_CLK_TCK); }
struct Con { int fd; double t0; int left; bool first = false; long ev = 0; std::string tail; std::string head; };
static bool starts(const char* p, const char* with) { return !strncmp(p, with, strlen(with)); }
static bool whole(const char* p) { return starts(p, "[DONE]") || starts(p, "{\"type\":\"response.completed\"") || starts(p, "{\"type\":\"response.incomplete\"") || starts(p, "{\"type\":\"message_stop\""); }
static double pct(std::vector<float>& v, double p) { if (v.empty()) return 0; size_t k = std::min(v.size() - 1, (size_t)(p * v.size())); std::nth_element(v.begin(), v.begin() + k, v.end()); return v[k]; }
int main(int argc, char** argv) {
  rlimit files; getrlimit(RLIMIT_NOFILE, &files); files.rlim_cur = files.rlim_max; setrlimit(RLIMIT_NOFILE, &files);
  int n = atoi(argv[2]), rounds = atoi(argv[3]); std::string path = argv[4]; std::ifstream f(argv[5]); std::stringstream ss; ss << f.rdbuf(); int gp = argc > 6 ? atoi(argv[6]) : 0;
  std::vector<std::string> reqs; for (std::string body; std::getline(ss, body, '\0');) reqs.push_back("POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer " + std::string(getenv("KEY") ? getenv("KEY") : "sk-none") + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  std::vector<int> ports; std::stringstream given(getenv("PORTS") ? getenv("PORTS") : argv[1]); for (std::string each; std::getline(given, each, ',');) ports.push_back(atoi(each.c_str())); std::mt19937 chance(getpid());
  if (reqs.empty()) { fprintf(stderr, "no body\n"); return 1; }
  int ep = epoll_create1(0); std::vector<float> ttft, lat; long events = 0, bytes = 0, reads = 0; int live = 0, started = 0, done_ok = 0, bad = 0, begun = 0; bool hold = getenv("HOLD"); const bool plain = getenv("PLAIN"); std::vector<float> ends; static char buf[1 << 18]; size_t asked = 0;
  double T0 = now(), c0 = cpu(), g0 = gp ? gcpu(gp) : 0; const double stagger = getenv("STAGGER_US") ? atof(getenv("STAGGER_US")) / 1e6 : 0;
  auto start = [&](double t0, int left) { int fd = socket(AF_INET, SOCK_STREAM, 0); sockaddr_in a{}; a.sin_family = AF_INET; a.sin_port = htons(ports[chance() % ports.size()]); a.sin_addr.s_addr = inet_addr(getenv("HOST") ? getenv("HOST") : "127.0.0.1"); if (connect(fd, (sockaddr*)&a, sizeof a)) { perror("connect"); exit(1); } int one = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, 4); auto* c = new Con; c->fd = fd; c->t0 = t0; c->left = left; const std::string& req = reqs[asked++ % reqs.size()]; if (write(fd, req.data(), req.size()) < 0) exit(1); fcntl(fd, F_SETFL, O_NONBLOCK); epoll_event e{}; e.events = EPOLLIN; e.data.ptr = c; epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e); live++; };
  if (!stagger) for (; started < n; started++) start(now(), rounds - 1);
  auto report = [&] { double el = now() - T0;
    printf("streams=%d live=%d events=%ld done=%d bad=%d reads=%ld bytes/ev=%.0f wall=%.2f ev/s=%.0f gen_us/ev=%.1f", n, live, events, done_ok, bad, reads, bytes / (double)std::max(1L, events), el, events / el, (cpu() - c0) * 1e6 / std::max(1L, events));
    if (gp) printf(" GW_us/ev=%.1f", (gcpu(gp) - g0) * 1e6 / std::max(1L, events));
    printf(" ttft_us p50=%.0f p90=%.0f p99=%.0f", pct(ttft, .5), pct(ttft, .9), pct(ttft, .99)); if (lat.size()) printf(" tok_us p50=%.0f p90=%.0f p99=%.0f", pct(lat, .5), pct(lat, .9), pct(lat, .99)); printf(" end_us p50=%.0f p90=%.0f p99=%.0f", pct(ends, .5), pct(ends, .9), pct(ends, .99)); puts(""); fflush(stdout); };
  auto anew = [&] { events = bytes = reads = 0; ttft.clear(); lat.clear(); ends.clear(); T0 = now(); c0 = cpu(); g0 = gp ? gcpu(gp) : 0; };
  if (hold) { epoll_event e{}; e.events = EPOLLIN; epoll_ctl(ep, EPOLL_CTL_ADD, 0, &e); }  // the one event without a Con
  epoll_event evs[256]; double last = now();
  while (live || started < n) { for (; started < n && now() >= T0 + started * stagger; started++) start(T0 + started * stagger, rounds - 1);
    int k = epoll_wait(ep, evs, 256, started < n ? 1 : 1000); if (k > 0) last = now(); else if (started < n || now() - last < 60) continue; else { fprintf(stderr, "timeout live=%d\n", live); break; }
    for (int j = 0; j < k; j++) { Con* c = (Con*)evs[j].data.ptr; if (!c) { const ssize_t r = read(0, buf, sizeof buf); if (r <= 0) return 0; report(); anew(); if (!memcmp(buf, "end", std::min<size_t>(r, 3))) { hold = false; epoll_ctl(ep, EPOLL_CTL_DEL, 0, nullptr); } continue; }
      ssize_t r = read(c->fd, buf, sizeof buf); if (r < 0) continue; reads++;
      if (r > 0) { bytes += r; std::string s = c->tail; s.append(buf, r); if (c->head.size() < 300) c->head.append(buf, std::min<ssize_t>(r, 300));
        size_t last = s.rfind("\n"); if (last == std::string::npos) { c->tail = s; continue; } c->tail = s.substr(last + 1); s.resize(last + 1);
        long t = 0; const char* p = s.data(); const char* e = p + s.size();
        while ((p = (const char*)memmem(p, e - p, "data: ", 6))) { p += 6; if (!c->first) { c->first = true; ttft.push_back((now() - c->t0) * 1e6); if (++begun == n && hold) { puts("begun"); fflush(stdout); } } if (whole(p)) { done_ok++; continue; } events++; c->ev++;
          const char* nl = (const char*)memchr(p, '\n', e - p); const char* q = (const char*)memmem(p, (nl ? nl : e) - p, "\"T", 2); if (q && q[2] >= '0' && q[2] <= '9') { if (!t) t = nowns(); lat.push_back((t - atol(q + 2)) / 1e3); } }
      } else { ends.push_back((now() - c->t0) * 1e6); if (plain && starts(c->head.c_str(), "HTTP/1.1 200") && (c->tail.find("\"finish_reason\"") != std::string::npos || c->tail.find("\"embedding\"") != std::string::npos)) { c->ev++; events++; done_ok++; ttft.push_back(ends.back()); } if (!c->ev) { if (!bad++) fprintf(stderr, "%s\n", c->head.c_str()); } const int left = c->left; close(c->fd); delete c; live--; if (hold) return report(), 1; if (left) start(now(), left - 1); } } }
  report();
}
