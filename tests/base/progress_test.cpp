#include "base/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace halfbyte {
namespace {

// What was written to a memory stream by `use`.
template <class Use>
std::string written(Use use) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* stream = open_memstream(&text, &size);
  use(stream);
  std::fclose(stream);
  const std::string out(text, size);
  std::free(text);
  return out;
}

TEST(ProgressLine, BytesRateAndTimeLeft) {
  EXPECT_EQ(progress_line("load", 500'000'000, 2'000'000'000, 0.5, 200),
            "load   25%  477 MiB of 1.86 GiB  1.00 GB/s  ETA 0:02");
  EXPECT_EQ(progress_line("load", 2'000'000'000, 2'000'000'000, 1, 200), "load  100%  1.86 GiB of 1.86 GiB  2.00 GB/s");
  EXPECT_EQ(progress_line("load", 1'000'000, 4'000'000'000, 1, 200),
            "load    0%  977 KiB of 3.73 GiB  0.00 GB/s  ETA 1:06:39");
  EXPECT_EQ(progress_line("load", 0, 100, 0, 200), "load    0%  0 B of 100 B");
  EXPECT_EQ(progress_line("load", 2048, 0, 0, 200), "load  2.00 KiB");
  EXPECT_EQ(progress_line("load", 500'000'000, 2'000'000'000, 0.5, 12), "load   25%  ");
  EXPECT_EQ(progress_line("loading model.gguf", 500'000'000, 2'000'000'000, 0.5, 19), " 25%  477 MiB of 1.");
  EXPECT_EQ(progress_line("load", 2048, 0, 0, 6), "load  ");
}

TEST(ProgressLine, PiecesAndTimeLeft) {
  EXPECT_EQ(pieces_line("answering", 0, 0, 200, 0, 80), "answering  0 of 200");
  EXPECT_EQ(pieces_line("answering", 0, 50, 200, 4, 80), "answering  50 of 200  ETA 0:12");
  EXPECT_EQ(pieces_line("answering", 40, 50, 200, 4, 80), "answering  50 of 200  ETA 1:00") << "40 were there before";
  EXPECT_EQ(pieces_line("answering", 40, 40, 200, 4, 80), "answering  40 of 200");
  EXPECT_EQ(pieces_line("answering", 0, 200, 200, 4, 80), "answering  200 of 200");
  EXPECT_EQ(pieces_line("answering", 0, 50, 200, 4, 14), "answering  50 ");
}

TEST(ProgressBar, SilentUnlessEnabled) {
  EXPECT_EQ(written([](std::FILE* s) {
              ProgressBar bar("x", s, /*enabled=*/false);
              bar.update(1, 2);
            }),
            "");
  // A stream that is no terminal.
  std::FILE* file = std::tmpfile();
  {
    ProgressBar bar("x", file);
    bar.update(1, 2);
    bar.update(2, 2);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(ProgressBar, RewritesOneLineAndClearsIt) {
  const std::string out = written([](std::FILE* s) {
    ProgressBar bar("x", s, /*enabled=*/true);
    bar.update(1, 4);
    bar.update(4, 4);  // complete: drawn at once
    bar.finish();
    bar.update(1, 4);
  });
  EXPECT_THAT(out, ::testing::StartsWith("\rx   25%"));
  EXPECT_THAT(out, ::testing::HasSubstr("\rx  100%"));
  EXPECT_THAT(out, ::testing::EndsWith("\r\x1b[K"));
  EXPECT_EQ(out.find('\n'), std::string::npos);
}

TEST(ProgressBar, SharesAndLabelsOfWorkThatIsNoBytes) {
  EXPECT_EQ(written([](std::FILE* s) {
              ProgressBar bar("writing", s, /*enabled=*/true);
              bar.share(1, 4);
              bar.share(4, 4);
            }),
            "\rwriting   25%\x1b[K\rwriting  100%\x1b[K\r\x1b[K");
  EXPECT_EQ(written([](std::FILE* s) {
              ProgressBar bar("reading 1024 tokens", s, /*enabled=*/true);
              bar.show();
            }),
            "\rreading 1024 tokens\x1b[K\r\x1b[K");
}

TEST(ProgressBar, NothingToClearWithoutAnUpdate) {
  EXPECT_EQ(written([](std::FILE* s) { ProgressBar bar("x", s, /*enabled=*/true); }), "");
}

}  // namespace
}  // namespace halfbyte
