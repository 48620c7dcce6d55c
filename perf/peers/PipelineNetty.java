// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// The benchmark `pipeline` on Netty's EmbeddedChannel: see pipeline.cpp. Each case runs until it is compiled
// before it is measured; the time is that of the thread, without the compiler's.

import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelDuplexHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelPromise;
import io.netty.channel.embedded.EmbeddedChannel;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

public final class PipelineNetty {
    private static final int BATCH = 10_000;

    private static final class Passing extends ChannelDuplexHandler {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.fireChannelRead(message);
        }

        @Override
        public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
            context.write(message, promise);
        }
    }

    /** At either end: keeps what arrives. */
    private static final class End extends ChannelDuplexHandler {
        Object kept;

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            kept = message;
        }

        @Override
        public void write(ChannelHandlerContext context, Object message, ChannelPromise promise) {
            kept = message;
        }
    }

    private static void batch(ChannelHandlerContext from, End to, Object message, boolean inbound) {
        for (int i = 0; i < BATCH; ++i) {
            to.kept = null;
            if (inbound) {
                from.fireChannelRead(message);
            } else {
                from.write(message, from.voidPromise());
            }
            if (to.kept != message) {
                throw new IllegalStateException("the message has not arrived");
            }
        }
    }

    private static double nanoseconds(boolean inbound, int handlers, double seconds) {
        EmbeddedChannel channel = new EmbeddedChannel();
        End wire = new End();
        End application = new End();
        channel.pipeline().addLast(wire);
        for (int i = 0; i < handlers; ++i) {
            channel.pipeline().addLast(new Passing());
        }
        channel.pipeline().addLast(application);
        ChannelHandlerContext from = channel.pipeline().context(inbound ? wire : application);
        End to = inbound ? application : wire;
        Object message = Unpooled.wrappedBuffer(new byte[64]);
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        double result = 0;
        for (int part = 0; part < 2; ++part) {  // the first warms up
            long start = threads.getCurrentThreadCpuTime();
            long spent = 0;
            long count = 0;
            while (spent < seconds * 1e9) {
                batch(from, to, message, inbound);
                count += BATCH;
                spent = threads.getCurrentThreadCpuTime() - start;
            }
            result = (double) spent / count;
        }
        return result;
    }

    public static void main(String[] arguments) {
        if (!arguments[0].equals("--round")) {
            return;  // no instructions
        }
        boolean quick = arguments[arguments.length - 1].equals("--quick");
        int[] counts = quick ? new int[] {0, 4} : new int[] {0, 1, 4, 16};
        for (boolean inbound : new boolean[] {true, false}) {
            for (int handlers : counts) {
                System.out.printf(
                    "{\"variant\": \"Netty\", \"params\": {\"direction\": \"%s\", \"handlers\": %d}, "
                        + "\"metric\": \"cpu time\", \"unit\": \"ns/op\", \"value\": %.4g}%n",
                    inbound ? "in" : "out", handlers, nanoseconds(inbound, handlers, quick ? 0.1 : 0.5));
            }
        }
    }
}
