// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// An echo server on Netty, as its own example has it, with the NIO transport (Debian's package has no other
// that works) and one thread for accepting and for connections. The command line is that of server.h.

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import java.net.InetAddress;
import java.net.InetSocketAddress;

public final class EchoNetty {
    @ChannelHandler.Sharable
    private static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            context.close();
        }
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[arguments.length - 1]);
        EventLoopGroup loop = new NioEventLoopGroup(1);
        Echo echo = new Echo();
        ServerBootstrap bootstrap = new ServerBootstrap()
            .group(loop, loop)
            .channel(NioServerSocketChannel.class)
            .option(ChannelOption.SO_BACKLOG, 1024)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                public void initChannel(SocketChannel channel) {
                    channel.pipeline().addLast(echo);
                }
            });
        Channel listener =
            bootstrap.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port)).sync().channel();
        System.out.println("listening on " + ((InetSocketAddress) listener.localAddress()).getPort());
        while (System.in.read() >= 0) {
            // until the one who started this closes the pipe
        }
        System.exit(0);
    }
}
